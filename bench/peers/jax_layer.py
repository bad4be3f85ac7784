"""The authors' layer in JAX, from a checkout of https://github.com/moabarar/qna that the user has."""

import os
import sys
from importlib.metadata import version

from layer_worker import check_answer


class JaxSubject:
    def __init__(self, checkout, threads):
        if not checkout or not os.path.isfile(os.path.join(checkout, "layers", "qna.py")):
            raise ValueError("the subject jax needs --checkout, a folder with the authors' layers/qna.py")
        os.environ["JAX_PLATFORMS"] = "cpu"
        # XLA has no setting for its threads: it takes a thread for every core it may use.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        sys.path.insert(0, checkout)
        import jax
        from layers.qna import FusedKQnA
        self.jax, self.layer = jax, FusedKQnA
        self.version = f"jax {jax.__version__}, flax {version('flax')}"

    def prepare(self, case):
        from safetensors.numpy import load_file
        jax = self.jax
        tensors = load_file(case["file"])
        kernel, slots = case["kernel"], case["queries"] * case["heads"]
        layer = self.layer(features=case["dim"], heads=case["heads"], kernel_size=kernel, stride=1,
                           padding=kernel // 2, n_queries=case["queries"])
        parameters = {"params": {
            "query": tensors["qna.query"],
            "Wk": tensors["qna.key_weight"],
            "to_v": {"kernel": tensors["qna.value_weight"]},
            "to_out": {"kernel": tensors["qna.out_weight"]},
            "rpe_bias": tensors["qna.relative_bias"].reshape(-1, slots),
            "attn_scale_weights": tensors["qna.attention_scale"].reshape(1, 1, -1, slots),
        }}

        def train(parameters, x, gradient):
            y, back = jax.vjp(layer.apply, parameters, x)
            return y, back(gradient)

        self.arguments = [jax.device_put(a) for a in (parameters, tensors["x"])]
        if case["pass"] == "train":
            self.arguments.append(jax.device_put(tensors["gradient"]))
        function = jax.jit(train if case["pass"] == "train" else layer.apply)
        self.function = function.lower(*self.arguments).compile()
        answer = self.run()
        y = answer[0] if case["pass"] == "train" else answer
        # XLA plans its memory when it compiles: working memory, and the results beside it.
        plan = self.function.memory_analysis()
        return {"case": True, "max_difference": check_answer(y.__array__(), tensors["qna.answer"]),
                "peak_bytes": plan.temp_size_in_bytes + plan.output_size_in_bytes,
                "wanted_bytes": plan.output_size_in_bytes, "memory": "planned"}

    def release(self):
        self.function = self.arguments = None

    def run(self):
        return self.jax.block_until_ready(self.function(*self.arguments))
