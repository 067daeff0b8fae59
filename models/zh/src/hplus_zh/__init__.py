"""The checkpoint of the model zh, in the folder of that name; `hplus.HPlus("zh")` loads it."""
