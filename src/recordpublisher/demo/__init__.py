"""The demo: the main job, live, on real flights, with a verdict."""
