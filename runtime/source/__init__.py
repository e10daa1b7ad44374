"""Where models come from: the built-in model's wheel, and GGUF files converted once. Torch-free."""
