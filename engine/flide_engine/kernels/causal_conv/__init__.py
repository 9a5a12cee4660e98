"""The short causal convolution of a recurrent layer; `conv_gates` is its door."""
