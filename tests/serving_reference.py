"""What TensorFlow Serving's source says, where no package says it.

Read in the repository tensorflow/serving, in copies of several ages, the newest of
which may be older than the image that compose.yaml names: the flags in
model_servers/main.cc, the metrics where they are made (servables/tensorflow/util.cc,
batching/batching_session.cc, servables/tensorflow/saved_model_warmup_util.cc, and
tensorflow's cc/saved_model/loader.cc), their spelling in util/prometheus_exporter.cc
("/" becomes ":"), and the messages in the .proto files, of which the package
tensorflow-serving-api has ModelServerConfig, but none of those below.
"""

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    wrappers_pb2,
)

# model_servers/main.cc
# fmt: off
FLAGS = {
    "port", "grpc_socket_path", "rest_api_port", "rest_api_num_threads",
    "rest_api_timeout_in_ms", "rest_api_enable_cors_support", "enable_batching",
    "allow_version_labels_for_unavailable_models", "batching_parameters_file",
    "enable_per_model_batching_parameters", "model_config_file",
    "model_config_file_poll_wait_seconds", "model_name", "model_base_path",
    "num_load_threads", "num_unload_threads", "max_num_load_retries",
    "load_retry_interval_micros", "file_system_poll_wait_seconds",
    "flush_filesystem_caches", "tensorflow_session_parallelism",
    "tensorflow_session_config_file", "tensorflow_intra_op_parallelism",
    "tensorflow_inter_op_parallelism", "use_alts_credentials", "ssl_config_file",
    "platform_config_file", "per_process_gpu_memory_fraction", "saved_model_tags",
    "grpc_channel_arguments", "grpc_max_threads", "enable_model_warmup",
    "num_request_iterations_for_warmup", "version", "monitoring_config_file",
    "remove_unused_fields_from_bundle_metagraph", "prefer_tflite_model",
    "num_tflite_pools", "num_tflite_interpreters_per_pool",
    "enable_signature_method_name_check", "xla_cpu_compilation_enabled",
    "xla_gpu_compilation_enabled", "enable_profiler", "thread_pool_factory_config_file",
    "mixed_precision", "skip_initialize_tpu", "enable_serialization_as_tensor_content",
}
# fmt: on

# Each metric's labels, and whether it is a histogram (or a summary), which Prometheus
# sees as NAME_bucket (a histogram alone), NAME_sum and NAME_count.
COUNTERS = {
    ":tensorflow:serving:request_count": {"model_name", "status"},
    ":tensorflow:serving:batching_session:wrapped_run_count": set(),
    ":tensorflow:cc:saved_model:load_attempt_count": {"model_path", "status"},
    ":tensorflow:cc:saved_model:load_latency": {"model_path"},
}
HISTOGRAMS = {
    ":tensorflow:serving:request_latency": {"model_name", "API", "entrypoint"},
    ":tensorflow:serving:runtime_latency": {"model_name", "API", "runtime"},
    ":tensorflow:serving:model_warmup_latency": {"model_path", "status"},
    ":tensorflow:serving:batching_session:queuing_latency": {"thread_pool_name"},
}
SUMMARIES = {
    ":tensorflow:serving:batching_session:input_batch_size": set(),
    ":tensorflow:serving:batching_session:processed_batch_size": set(),
    ":tensorflow:serving:batching_session:padding_size": {"execution_batch_size"},
}
SERIES = {
    **COUNTERS,
    **{
        f"{name}_{part}": labels | ({"le"} if part == "bucket" else set())
        for name, labels in HISTOGRAMS.items()
        for part in ("bucket", "sum", "count")
    },
    **{
        f"{name}_{part}": labels
        for name, labels in SUMMARIES.items()
        for part in ("sum", "count")
    },
}

# The fields of messages that no package has: config/monitoring_config.proto,
# config/ssl_config.proto, servables/tensorflow/session_bundle_config.proto.
MESSAGES = {
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": "PrometheusConfig"},
    "SSLConfig": {
        "server_key": "string",
        "server_cert": "string",
        "custom_ca": "string",
        "client_verify": "bool",
    },
    "BatchingParameters": {
        "max_batch_size": "Int64Value",
        "batch_timeout_micros": "Int64Value",
        "max_enqueued_batches": "Int64Value",
        "num_batch_threads": "Int64Value",
        "thread_pool_name": "StringValue",
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
        "enable_large_batch_splitting": "BoolValue",
        "max_execution_batch_size": "Int64Value",
    },
}


def message(name):
    """A message class with the fields above.

    The numbers of the fields are not the real ones, which text format has no use for.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(_file())
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"reference.{name}")
    )


def _file():
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="reference.proto", package="reference", syntax="proto3"
    )
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    for name, fields in MESSAGES.items():
        made = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), start=1):
            repeated, kind = kind.startswith("repeated "), kind.split()[-1]
            added = made.field.add(name=field, number=number)
            added.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in MESSAGES or kind.endswith("Value"):
                home = "reference" if kind in MESSAGES else "google.protobuf"
                added.type = kinds.TYPE_MESSAGE
                added.type_name = f".{home}.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
    return file
