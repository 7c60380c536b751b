"""Gradients by TensorFlow's own means, and what a traced function computes."""

import keras
import tensorflow as tf


def gradients(function, variables):
    """The value of a function of Keras variables, and its gradients; as NumPy."""
    with tf.GradientTape() as tape:
        value = function()
    slopes = tape.gradient(value, [v.value for v in variables])
    slopes = [tf.convert_to_tensor(slope) for slope in slopes]
    return float(value), [keras.ops.convert_to_numpy(slope) for slope in slopes]


def shapes_of(function, *variables):
    """The shapes of all tensors in the graph of a function and its gradients."""

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
