"""Gradients by the backend's own means, and what a traced function computes."""

import keras
import numpy as np

ON_JAX = keras.backend.backend() == "jax"


def gradients(function, variables):
    """The value of a function of Keras variables, and its gradients; as NumPy."""
    if ON_JAX:
        import jax

        def pure(values):
            mapping = [*zip(variables, values, strict=True)]
            with keras.StatelessScope(state_mapping=mapping):
                return function()

        value, slopes = jax.value_and_grad(pure)([v.value for v in variables])
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = function()
        slopes = tape.gradient(value, [v.value for v in variables])
        slopes = [tf.convert_to_tensor(slope) for slope in slopes]
    return float(value), [keras.ops.convert_to_numpy(slope) for slope in slopes]


def compiled(function):
    """The function as a graph."""
    if ON_JAX:
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function)


def shapes_of(function, *variables):
    """The shapes of all tensors in the graph of a function and its gradients."""
    if ON_JAX:
        import jax

        def pure(*values):
            mapping = [*zip(variables, values, strict=True)]
            with keras.StatelessScope(state_mapping=mapping):
                return function()

        traced = jax.make_jaxpr(jax.grad(pure, argnums=tuple(range(len(variables)))))
        return [*_shapes_of_jaxpr(traced(*(v.value for v in variables)).jaxpr)]
    import tensorflow as tf

    @tf.function
    def graph():
        with tf.GradientTape() as tape:
            value = function()
        return tape.gradient(value, [v.value for v in variables])

    written = graph.get_concrete_function().graph.as_graph_def(add_shapes=True)
    nodes = [*written.node]
    for inner in written.library.function:
        nodes += inner.node_def
    return [
        tuple(dim.size for dim in shape.dim)
        for node in nodes
        for shape in node.attr["_output_shapes"].list.shape
    ]


def _shapes_of_jaxpr(jaxpr):
    for equation in jaxpr.eqns:
        yield from (np.shape(out.aval) for out in equation.outvars)
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)  # of a closed one
                if hasattr(inner, "eqns"):
                    yield from _shapes_of_jaxpr(inner)
