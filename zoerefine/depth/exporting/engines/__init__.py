"""The engine kinds, one module each; `engine_kinds.EngineKind` lists what a module defines."""
