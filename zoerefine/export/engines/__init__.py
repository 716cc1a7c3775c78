"""The engines, one a module: each gives what `engine_kinds.Kind` lists."""
