"""One subject of `qna bench layer --study` in a process of its own. README.md describes the protocol.

  layer_worker.py --subject sasa-compiled --threads 2
"""

import ctypes
import gc
import json

import protocol

TOLERANCE = 1e-3  # of the largest number of the answer
NUMBERS = ("kernel", "height", "width", "dim", "heads", "queries")


def parse_case(text):
    case = json.loads(text)
    missing = [key for key in (*NUMBERS, "pass", "file") if key not in case]
    if missing:
        raise ValueError(f"a case needs {', '.join(missing)}")
    if any(type(case[key]) is not int or case[key] < 1 for key in NUMBERS):
        raise ValueError(f"{', '.join(NUMBERS)} of a case must be positive whole numbers")
    if case["pass"] not in ("forward", "train"):
        raise ValueError(f"pass is {case['pass']!r}; there are forward, train")
    return case


def check_answer(y, expected):
    """The largest difference, as a part of the largest |expected|."""
    if y.shape != expected.shape:
        raise RuntimeError(f"the answer is {list(y.shape)}, expected {list(expected.shape)}")
    found = float(abs(y - expected).max() / abs(expected).max())
    if not found <= TOLERANCE:
        raise RuntimeError(f"the answer differs by {found:.3g} of the largest number; "
                           f"at most {TOLERANCE} is allowed")
    return found


def allocated_peak(run):
    """The highest amount that torch's allocator gave out during run(), beyond what was there before."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def load_tensors(path, family):
    """The input, the gradient of the output, and what belongs to the family."""
    from safetensors import safe_open
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()
                if name in ("x", "gradient") or (family and name.startswith(family + "."))}


def give_back_memory():
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        pass  # not glibc


class TorchSubject:
    def __init__(self, name, threads):
        import layers
        import torch
        import torch_subjects
        if name not in layers.SUBJECTS:
            raise ValueError(f"unknown subject {name!r}; there are {', '.join(layers.SUBJECTS)}, jax")
        self.make, self.family, self.compiled = layers.SUBJECTS[name]
        self.cannot = layers.Cannot
        self.torch = torch
        self.version = f"torch {torch.__version__}"
        if name.startswith("halo"):
            self.version = f"timm {torch_subjects.import_timm().__version__}, {self.version}"
        torch_subjects.use_threads(threads)

    def load(self, case):
        """The layer and its input, made ready to run; returns what to compare its answer with."""
        torch = self.torch
        tensors = load_tensors(case["file"], self.family)
        self.training = case["pass"] == "train"
        self.layer = self.make(case)
        expected = None
        if self.family:
            start = self.family + "."
            weights = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
            expected = weights.pop("answer")
            self.layer.load_state_dict(weights)
        self.layer.requires_grad_(self.training)
        self.forward = torch.compile(self.layer, dynamic=False) if self.compiled else self.layer
        self.x = tensors["x"].requires_grad_(self.training)
        self.gradient = tensors["gradient"]
        return expected

    def forget_gradients(self):
        self.x.grad = None
        self.layer.zero_grad(set_to_none=True)

    def run(self):
        if not self.training:
            with self.torch.inference_mode():
                return self.forward(self.x)
        self.forget_gradients()
        y = self.forward(self.x)
        y.backward(self.gradient)
        return y

    def compare(self, y, expected):
        if y.shape != self.x.shape:
            raise RuntimeError(f"the answer is {list(y.shape)}, expected {list(self.x.shape)}")
        if expected is None:
            return None
        part = getattr(self.layer, "comparable", lambda map: map)
        return check_answer(part(y.detach()), part(expected))

    def memory(self):
        """Peak bytes of one run, and how many of them are what was asked for: answer and gradients."""
        self.forget_gradients()
        gc.collect()
        wanted = self.x.nbytes  # the answer is as large as the input
        if self.training:
            wanted += self.x.nbytes + sum(p.nbytes for p in self.layer.parameters())
        return {"peak_bytes": allocated_peak(self.run), "wanted_bytes": wanted, "memory": "counted"}

    def release(self):
        self.layer = self.forward = self.x = self.gradient = None
        self.torch.compiler.reset()

    def prepare(self, case):
        try:
            expected = self.load(case)
        except self.cannot as reason:
            return {"case": False, "skipped": str(reason)}
        found = self.compare(self.run(), expected)
        return {"case": True, "max_difference": found, **self.memory()}


def start():
    parser = protocol.Parser(description=__doc__)
    parser.add_argument("--subject", required=True)
    parser.add_argument("--threads", type=protocol.positive, required=True)
    parser.add_argument("--checkout", help="of the authors' code, for the subject jax")
    arguments = parser.parse_args()
    protocol.use_threads(arguments.threads)
    if arguments.subject == "jax":
        from jax_layer import JaxSubject
        subject = JaxSubject(arguments.checkout, arguments.threads)
    else:
        subject = TorchSubject(arguments.subject, arguments.threads)

    def release(_):
        subject.release()
        give_back_memory()
        return {"released": True}

    ready = {"ready": True, "subject": arguments.subject, "version": subject.version}
    return ready, {"case": lambda text: subject.prepare(parse_case(text)),
                   "run": protocol.timed(lambda: subject.run()), "release": release}


if __name__ == "__main__":
    protocol.serve(start)
