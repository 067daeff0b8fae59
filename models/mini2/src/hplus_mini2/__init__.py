"""The checkpoint of the model mini2, in the folder of that name; `hplus.HPlus("mini2")` loads it."""
