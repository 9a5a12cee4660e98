"""What models are made of: norms, rotary positions, mixers and the feed-forward part."""
