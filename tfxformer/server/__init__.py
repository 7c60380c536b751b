"""A server that speaks TensorFlow Serving's REST and gRPC protocols."""
