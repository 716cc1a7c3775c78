"""The parts of benchmarks/rooms.py: folds, sides, figures, fine-tuning and rows."""
