"""The checkpoint of the model mini2, in the folder of that name, for `hplus.HPlus("mini2")`."""
