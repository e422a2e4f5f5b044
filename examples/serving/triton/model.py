"""Triton Inference Server's Python back end.

repository/classifier/config.pbtxt     backend: "python"; the rest is taken from the bundle
repository/classifier/1/model.py       this file
repository/classifier/1/bundle/        the bundle
"""

from pathlib import Path

import triton_python_backend_utils as pb_utils

from aotc import runtime

BUNDLE = Path(__file__).with_name("bundle")
TYPES = {
    "f64": "FP64", "f32": "FP32", "f16": "FP16", "bf16": "BF16", "i64": "INT64", "i32": "INT32",
    "i16": "INT16", "i8": "INT8", "u8": "UINT8", "bool": "BOOL",
}  # fmt: skip


class TritonPythonModel:
    """One instance of the model; Triton calls one at a time, and makes several if asked to."""

    @staticmethod
    def auto_complete_config(config):
        """Inputs and outputs as the bundle has them."""
        with runtime.load(BUNDLE) as program:
            for add, specs in (
                (config.add_input, program.inputs),
                (config.add_output, program.outputs),
            ):
                for spec in specs:
                    dims = [size if isinstance(size, int) else -1 for size in spec.shape]
                    add({"name": spec.name, "data_type": f"TYPE_{TYPES[spec.dtype]}", "dims": dims})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        device = f"cuda:{args['model_instance_device_id']}"
        is_gpu = args["model_instance_kind"] == "GPU"
        self.program = runtime.load(BUNDLE, device=device if is_gpu else "cpu")

    def execute(self, requests):
        """One answer a request: one that fails is an error of its own."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        arrays = {
            spec.name: pb_utils.get_input_tensor_by_name(request, spec.name).as_numpy()
            for spec in self.program.inputs
        }
        try:
            found = self.program.flatten(self.program(**arrays))
        except runtime.InputError as error:  # for the client; all else goes to Triton's log
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        names = [spec.name for spec in self.program.outputs]
        tensors = [pb_utils.Tensor(*each) for each in zip(names, found, strict=True)]
        return pb_utils.InferenceResponse(tensors)

    def finalize(self):
        self.program.drain(30)
