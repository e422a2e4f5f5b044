"""`aotc build examples/llm/spec.py -o model.aotc`: the language model in the folder `model` here.

`train.py` makes one; a folder of any causal model of transformers does as well.
"""

from pathlib import Path

from aotc.aot.huggingface import causal_step

FOLDER = Path(__file__).with_name("model")
model, example_inputs, dynamic_shapes = causal_step(FOLDER, max_length=512, batch=16, max_prompt=64)
