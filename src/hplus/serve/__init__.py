"""The HTTP service: a thin layer over `Index` and `types.Search`.

request -> guard (keys, limits, time) -> endpoint -> batch of queries -> search in a thread -> JSON

`app.create_app` makes the ASGI application, `run.serve` runs it under uvicorn.
"""
