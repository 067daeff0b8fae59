from __future__ import annotations

from service import folder, model_folder, served_model

__all__ = ["folder", "model_folder", "served_model"]
