"""Makes machine code of functions that treat every element alike, and operations of TensorFlow of the machine code.

`element_loops` writes a function as loops in LLVM's language. `compiled_ops` compiles these for the processor at hand
and registers them with TensorFlow. `passes/fusing.py` puts the operations into graphs.
"""
