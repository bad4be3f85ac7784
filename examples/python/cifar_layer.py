"""QnA layers inside a small network of one's own, trained on CIFAR-10 for two minutes on a CPU.

    python cifar_layer.py --data cifar10.tar.xz

The data is a tar with the pictures in folders of their classes (train/<class>/*.jpg and test/<class>/*.jpg;
Pillow reads them), or cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html as it is. The
cells (# %%) also run one by one, in an editor or as a notebook.
"""

# %% What is needed
import argparse
import io
import math
import os
import sys
import tarfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import qna

parser = argparse.ArgumentParser(description="Trains QnA layers inside a small network on CIFAR-10.")
parser.add_argument("--data", default=os.environ.get("QNA_CIFAR10", "cifar10.tar.xz"),
                    help="tar of CIFAR-10 [$QNA_CIFAR10 or cifar10.tar.xz]")
parser.add_argument("--minutes", type=float, default=2, help="how long to train [2]")
arguments, _ = parser.parse_known_args()  # a notebook has arguments of its own
if not os.path.exists(arguments.data):
    sys.exit(f"There is no CIFAR-10 at {arguments.data}. Name the tar with --data, see the top of this file.")


# %% The pictures
def decode_folders(files):
    """{split: (pictures [N, 32, 32, 3], labels [N])} of {"train/<class>/1.jpg": bytes}."""
    import PIL.Image

    pictures, classes = {"train": [], "test": []}, {"train": [], "test": []}
    for name, content in files.items():
        split, kind, _ = name.split("/")[-3:]
        pictures[split].append(np.asarray(PIL.Image.open(io.BytesIO(content)).convert("RGB")))
        classes[split].append(kind)
    return {split: (np.stack(pictures[split]), np.unique(classes[split], return_inverse=True)[1])
            for split in pictures}


def decode_binary(files):
    """The same of {"data_batch_1.bin": bytes}: records of a label and 3 x 32 x 32 bytes."""
    records = {"train": [], "test": []}
    for name, content in files.items():
        split = "test" if "test_batch" in name else "train"
        records[split].append(np.frombuffer(content, np.uint8).reshape(-1, 3073))
    rows = {split: np.concatenate(parts) for split, parts in records.items()}
    return {split: (r[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), r[:, 0]) for split, r in rows.items()}


def read_cifar(path):
    """{split: (pictures uint8 [N, 32, 32, 3], labels int64 [N])}"""
    with tarfile.open(path) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    binary = {name: content for name, content in files.items() if name.endswith(".bin")}
    folders = {name: content for name, content in files.items() if name.endswith((".jpg", ".png"))}
    decoded = decode_binary(binary) if binary else decode_folders(folders)
    return {split: (torch.from_numpy(np.ascontiguousarray(pictures)), torch.from_numpy(labels.astype(np.int64)))
            for split, (pictures, labels) in decoded.items()}


started = time.monotonic()
data = read_cifar(arguments.data)
train_pictures, train_labels = data["train"]
test_pictures, test_labels = data["test"]
print(f"{len(train_pictures)} pictures to train, {len(test_pictures)} to test, "
      f"read in {time.monotonic() - started:.0f} s")


# %% The network: QnA where a convolution would be
class Block(nn.Module):
    """A QnA layer and an MLP, each with a norm before and a skip around it. [B, H, W, C] -> the same."""

    def __init__(self, features, kernel_size=3, heads=8):
        super().__init__()
        self.norm1 = nn.LayerNorm(features)
        self.qna = qna.QnA(features, heads=heads, kernel_size=kernel_size)
        self.norm2 = nn.LayerNorm(features)
        self.mlp = nn.Sequential(nn.Linear(features, 2 * features), nn.GELU(), nn.Linear(2 * features, features))

    def forward(self, x):
        x = x + self.qna(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Network(nn.Module):
    """[B, 32, 32, 3] -> [B, 10]"""

    def __init__(self, features=48):
        super().__init__()
        self.stem = nn.Conv2d(3, features, 3, stride=2, padding=1)           # 16 x 16
        self.fine = nn.Sequential(Block(features), Block(features))
        self.norm = nn.LayerNorm(features)
        self.down = qna.QnA(features, out_features=2 * features, stride=2)   # 8 x 8
        self.coarse = nn.Sequential(Block(2 * features, 5), Block(2 * features, 5))
        self.head = nn.Sequential(nn.LayerNorm(2 * features), nn.Linear(2 * features, 10))

    def forward(self, x):
        x = self.stem(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)             # channels last from here on
        x = self.down(self.norm(self.fine(x)))
        return self.head(self.coarse(x).mean((1, 2)))


torch.manual_seed(0)
network = Network()
print(f"{sum(p.numel() for p in network.parameters()):,} parameters")


# %% How it learns
def to_floats(pictures):
    """uint8 [B, 32, 32, 3] -> float32, about -2 to 2."""
    return (pictures.float() - 120.7) / 64.2


def mirrored(pictures):
    """Every second picture, by chance."""
    return torch.where(torch.rand(len(pictures), 1, 1, 1) < 0.5, pictures.flip(2), pictures)


def rate(done):
    """The learning rate when this part of the time is over: up, then down like a cosine."""
    return 3e-3 * min(done / 0.1, 0.5 * (1 + math.cos(math.pi * done)))


@torch.inference_mode()
def accuracy():
    network.eval()
    right = sum(int((network(to_floats(x)).argmax(1) == y).sum())
                for x, y in zip(test_pictures.split(500), test_labels.split(500)))
    network.train()
    return 100 * right / len(test_labels)


# %% Training, until the time is over
optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.05)
begin, seconds, step, next_line = time.monotonic(), 60 * arguments.minutes, 0, 0.0
while (done := (time.monotonic() - begin) / seconds) < 1:
    chosen = torch.randint(len(train_pictures), (64,))
    logits = network(to_floats(mirrored(train_pictures[chosen])))
    loss = F.cross_entropy(logits, train_labels[chosen])
    optimizer.param_groups[0]["lr"] = rate(done)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if done >= next_line:
        print(f"{100 * done:3.0f} %  step {step:4d}  loss {loss.item():.2f}", flush=True)
        next_line += 0.1

# %% What it has learnt
print(f"{step} steps, {step * 64 / len(train_pictures):.1f} epochs: {accuracy():.1f} % of the test pictures are right")
