"""The examples in the docstrings run, in every module of the package."""

import doctest
import importlib
import pkgutil

import pytest

import tfxformer

MODULES = ["tfxformer"] + [
    module.name for module in pkgutil.walk_packages(tfxformer.__path__, "tfxformer.")
]


@pytest.mark.usefixtures("loaded_once")
@pytest.mark.parametrize("name", MODULES)
def test_the_doctests_of_each_module_pass(name):
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert not failed, "the captured output has the report"
