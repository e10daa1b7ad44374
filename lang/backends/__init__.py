"""What a program runs on: the interface that backends have."""
