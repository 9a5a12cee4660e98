"""The shapes of the Qwen3.5 models, as their configurations have them, and a tiny one."""

from __future__ import annotations

from typing import Any

ROPE = {
    "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
    "mrope_section": [11, 11, 10], "mrope_interleaved": True,
}  # fmt: skip
COMMON = {
    "model_type": "qwen3_5_text", "vocab_size": 248320, "max_position_embeddings": 262144,
    "head_dim": 256, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6,
    "rope_parameters": ROPE, "tie_word_embeddings": True,
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "tiny": COMMON | {
        "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 2, "num_key_value_heads": 1, "linear_num_key_heads": 2,
        "linear_num_value_heads": 2, "head_dim": 64, "linear_key_head_dim": 32,
        "linear_value_head_dim": 32, "rope_parameters": ROPE | {"mrope_section": [4, 2, 2]},
    },
    "0.8B": COMMON | {
        "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24,
        "num_attention_heads": 8, "num_key_value_heads": 2, "linear_num_value_heads": 16,
    },
    "4B": COMMON | {
        "hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 32,
        "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32,
    },
    "9B": COMMON | {
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
        "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32,
        "tie_word_embeddings": False,
    },
}  # fmt: skip
