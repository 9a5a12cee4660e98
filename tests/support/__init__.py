"""What several test files share: small random models, the float64 truth, and ways to run rounds."""
