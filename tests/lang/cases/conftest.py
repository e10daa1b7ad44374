from scripted_runtime import start

__all__ = ["start"]
