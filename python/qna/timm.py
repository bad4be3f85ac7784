"""QnA-ViT in timm: `import qna.timm` adds the classifiers of `qna.list_models()` to timm's registry.

    import qna.timm, timm
    model = timm.create_model("qna_vit_tiny", num_classes=10, drop_path_rate=0.1)
    pyramid = timm.create_model("qna_vit_tiny", features_only=True)   # maps with strides 4, 8, 16 and 32
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Sequence, Union

import torch.nn.functional as F
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn

from qna import config as configs
from qna._error import Error
from qna.blocks import linear, pixels, planes
from qna.config import QnAViTConfig
from qna.models import QnAViT
from qna.weights import default_preprocess

__all__ = ["TimmQnAViT"]


class TimmQnAViT(QnAViT):
    """A QnA-ViT with what timm expects of a network. Images and maps are [B, C, H, W].

    Args:
        name: of the configuration.
        num_classes: 0: the network ends with the pooled features, behind the head's norm.
        in_chans: channels of the images.
        img_size: height and width, or one number; windows over the whole map have tables of this size.
        drop_rate: of dropout before the last layer.
        drop_path_rate: of stochastic depth; None: as the named configuration has it.
        global_pool: "avg", or "": without classes the map is not pooled.
        changes: keys of the configuration with other values.
    """

    def __init__(
        self,
        name: str,
        num_classes: int = 1000,
        in_chans: int = 3,
        img_size: Optional[Union[int, Sequence[int]]] = None,
        drop_rate: float = 0.0,
        drop_path_rate: Optional[float] = None,
        global_pool: str = "avg",
        **changes: Any,
    ):
        table = {**configs.entry(name)["config"], **changes, "classes": max(num_classes, 1), "in_channels": in_chans}
        if img_size is not None:
            table["image_size"] = img_size
        if drop_path_rate is not None:
            table["drop_path"] = drop_path_rate
        super().__init__(QnAViTConfig.from_json(table))
        self.name, self.drop_rate = name, drop_rate
        self.global_pool = _checked_pool(global_pool)
        if num_classes == 0:
            self.reset_classifier(0)
        self.feature_info = [
            {"num_chs": self.config.features(i), "reduction": self.config.stride(i), "module": f"stages.{i}"}
            for i in range(len(self.stages))]

    @property
    def head_hidden_size(self) -> int:
        return self.num_features

    def get_classifier(self) -> nn.Module:
        return self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: Optional[str] = None) -> None:
        """A new last layer; 0: none."""
        if global_pool is not None:
            self.global_pool = _checked_pool(global_pool)
        self.config.classes = num_classes
        self.head.fc = linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, C, H, W] -> logits [B, classes]"""
        return self.forward_head(self.forward_features(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The last map [B, features, h, w] -> logits [B, classes], or what they are made of."""
        if self.global_pool == "":
            x = planes(self.head.norm(pixels(x)))
            if pre_logits or self.config.classes == 0:
                return x
            x = x.mean((2, 3))
        else:
            x = self.head.pool(pixels(x))
        x = F.dropout(x, self.drop_rate, self.training)
        return x if pre_logits else self.head.fc(x)

    def prune_intermediate_layers(self, indices: Optional[Union[int, Sequence[int]]] = None, prune_norm: bool = False,
                                  prune_head: bool = True) -> list[int]:
        """Takes out what the maps of these stages do not need; returns the stages."""
        taken = self._stage_indices(indices)
        self.stages = self.stages[: max(taken) + 1]
        self.stages[-1].downsample = None
        if prune_norm:
            self.head = None
        elif prune_head:
            self.reset_classifier(0, "")
        return taken

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.set_checkpointing(enable)

    def no_weight_decay(self) -> set[str]:
        """Tables over the taps of windows."""
        return {name for name, _ in self.named_parameters() if name.endswith(("relative_bias", "attention_scale"))}

    @staticmethod
    def group_matcher(coarse: bool = False) -> dict[str, Any]:
        """Names of parameters by depth, for rates that grow with it."""
        blocks = [(r"^stages\.(\d+)\.blocks\.(\d+)", None), (r"^stages\.(\d+)\.downsample", (9999,)),
                  (r"^head", (99999,))]
        return {"stem": r"^stem", "blocks": r"^stages\.(\d+)" if coarse else blocks}


def _checked_pool(global_pool: str) -> str:
    if global_pool not in ("avg", ""):
        raise Error(f"TimmQnAViT: global_pool must be 'avg' or '', got {global_pool!r}")
    return global_pool


def _default_cfg(row: dict[str, Any]) -> dict[str, Any]:
    config = QnAViTConfig.from_json(row["config"])
    preprocess = default_preprocess(config)
    stride = config.stride(len(config.stages) - 1)
    return {"url": "", "num_classes": config.classes, "input_size": (config.in_channels, *config.image_size),
            "pool_size": tuple(-(-side // stride) for side in config.image_size), "crop_pct": 0.875,
            "interpolation": preprocess["filter"], "mean": tuple(preprocess["mean"]),
            "std": tuple(preprocess["std"]), "first_conv": "stem.conv", "classifier": "head.fc",
            "fixed_input_size": False}


def _entry_point(name: str, stages: int) -> Callable[..., nn.Module]:
    def create(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        return build_model_with_cfg(
            functools.partial(TimmQnAViT, name), name, pretrained,
            feature_cfg={"out_indices": tuple(range(stages)), "feature_cls": "getter"}, **kwargs)

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"{name} of `qna.list_models()`."
    return create


_classifiers = [row for row in configs.entries() if row["kind"] == configs.CLASSIFIER]
default_cfgs = generate_default_cfgs({row["name"]: _default_cfg(row) for row in _classifiers})
for _row in _classifiers:
    globals()[_row["name"]] = register_model(_entry_point(_row["name"], len(_row["config"]["stages"])))
