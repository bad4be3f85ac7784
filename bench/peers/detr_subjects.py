"""DETR on ResNet-50, in training and in use."""

from importlib.metadata import version

import torch

import detr

OBJECTS = 8  # per image


def channels_first(images):
    # Where the numbers lie stays as it is: convolutions are faster so.
    return torch.from_numpy(images).permute(0, 3, 1, 2)


class Subject:
    channels = 3

    def __init__(self, arguments):
        torch.set_num_threads(arguments.threads)
        torch.set_num_interop_threads(1)
        self.model, self.config = detr.load(arguments.weights)
        self.model.to(memory_format=torch.channels_last)
        self.version = f"torch {torch.__version__}, torchvision {version('torchvision')}"

    @torch.no_grad()
    def logits(self, images):
        """Logits and boxes of the last layer, to be compared."""
        logits, boxes = self.model.eval()(channels_first(images))
        return torch.cat((logits[-1], boxes[-1]), -1).numpy()


class Detection(Subject):
    def set_images(self, images):
        self.images = channels_first(images)
        self.model.eval().requires_grad_(False)

    @torch.inference_mode()
    def run(self):
        logits, boxes = self.model(self.images)
        return detr.detections(logits[-1], boxes[-1], *self.images.shape[2:], 0.5)


class Training(Subject):
    """One step: forward, matching and losses of all layers, backward, clipping, AdamW."""

    def __init__(self, arguments):
        super().__init__(arguments)
        self.model.freeze_first_stage()
        groups = {True: [], False: []}  # of the backbone, or not
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                groups[name.startswith("backbone")].append(parameter)
        self.parameters = groups[True] + groups[False]
        self.optimizer = torch.optim.AdamW(
            [{"params": groups[False]}, {"params": groups[True], "lr": 1e-5}], lr=1e-4,
            weight_decay=1e-4, fused=True)

    def set_images(self, images):
        self.images = channels_first(images)
        self.targets = []
        for _ in images:
            boxes = torch.cat((0.2 + 0.6 * torch.rand(OBJECTS, 2), 0.05 + 0.35 * torch.rand(OBJECTS, 2)), 1)
            self.targets.append((torch.randint(self.config["classes"], (OBJECTS,)), boxes))
        self.model.train()

    def run(self):
        self.optimizer.zero_grad()
        detr.set_loss(*self.model(self.images), self.targets).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 0.1)
        self.optimizer.step()


SUBJECTS = {
    "detr-detect": lambda arguments, _: Detection(arguments),
    "detr-train": lambda arguments, _: Training(arguments),
}
