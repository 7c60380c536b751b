"""The model also runs on Keras's JAX backend, because it uses `keras.ops`."""

import json
import os
import subprocess
import sys

import numpy as np
import oracle
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.decoding import decode

pytest.importorskip("jax")

SOURCE = np.array([[7, 8, 3, 0, 0], [5, 6, 7, 8, 3], [4, 3, 0, 0, 0]], "int32")
TARGET = np.array([[2, 8, 9, 0], [2, 4, 5, 6], [2, 0, 0, 0]], "int32")
SETTINGS = {"num_layers": 1, "tie_embeddings": True, "max_length": 24}
ON_JAX = """
import json, sys
import keras, numpy as np
from tfxformer.decoding import decode
from tfxformer.model import Transformer

assert keras.backend.backend() == "jax"
case = dict(np.load("case.npz"))
source, target = case.pop("source"), case.pop("target")
model = Transformer(**json.loads(sys.argv[1]))
model.build(((None, None), (None, None)))
model.set_weights([case[str(i)] for i in range(len(case))])
np.savez("answer.npz", logits=model((source, target)), ids=decode(model, source).ids)
"""


@pytest.mark.slow
def test_logits_and_greedy_decoding_on_jax_equal_those_on_tensorflow(tmp_path):
    model = oracle.tiny_transformer(**SETTINGS)
    weights = {str(i): array for i, array in enumerate(model.get_weights())}
    np.savez(tmp_path / "case.npz", source=SOURCE, target=TARGET, **weights)
    environment = {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiles faster
        "PYTHONPATH": os.pathsep.join(map(str, filter(None, sys.path))),
    }
    code = [sys.executable, "-c", ON_JAX, json.dumps(model.config)]
    subprocess.run(code, cwd=tmp_path, env=os.environ | environment, check=True)
    answer = np.load(tmp_path / "answer.npz")
    assert_allclose(answer["logits"], model((SOURCE, TARGET)), atol=1e-4)
    assert_array_equal(answer["ids"], decode(model, SOURCE).ids)
