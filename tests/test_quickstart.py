"""The main job, by its command: minutes, so it is marked slow."""

import re
import subprocess
import sys

import pytest

from tfxformer.exporting.verify import verify
from tfxformer.training.run import Run


@pytest.mark.slow
def test_quickstart(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tfxformer.cli", "quickstart", "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "E0000" not in done.stderr
    *shown, bleu, chrf, path = done.stdout.splitlines()
    assert float(re.match(r"BLEU ([\d.]+)", bleu)[1]) >= 85
    assert float(re.match(r"chrF ([\d.]+)", chrf)[1]) >= 85
    assert len(shown) >= 8 and all("  →  " in line for line in shown)
    assert path == "SavedModel: out/export/pt_en/1"
    exported = tmp_path / "out" / "export" / "pt_en" / "1"
    assert verify(exported).ok

    # The weights are in it once, as float32.
    size = sum(file.stat().st_size for file in exported.glob("variables/*"))
    _, model = Run.open(tmp_path / "out" / "run").load()
    assert size <= 1.1 * 4 * model.count_params()
