"""Makes Python find no TensorFlow; `pytest -p without_tensorflow`, or an import."""

import sys


class _Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tensorflow_text"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, _Nothing())
