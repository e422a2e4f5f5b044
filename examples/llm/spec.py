"""`aotc build examples/llm/spec.py -o model.aotc`: the language model in the folder `model` here.

`train.py` makes one; a folder of any causal model of transformers does as well.
"""

from pathlib import Path

from aotc.aot.huggingface import causal_lm

FOLDER = Path(__file__).with_name("model")
model, entry_points = causal_lm(FOLDER, max_length=512, batch=16)
