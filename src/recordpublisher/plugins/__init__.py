"""Layer 3: adapters (sinks, stores, Spark), and the code that puts the layers together into jobs. Start at `runtime/job_assembly.py`."""
