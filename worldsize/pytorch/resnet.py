"""Residual networks of any of the paper's depths, for images with any number of channels.

K. He, X. Zhang, S. Ren and J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, table 1. As in torchvision, a
bottleneck takes its stride in the 3 × 3 convolution, and a block's last scale starts at one, so the counts of parameters are
torchvision's. Left out: pretrained weights, and stems for small images.
"""

import torch
from torch import nn

# depth: (blocks in each of the four stages, True for bottlenecks)
DEPTHS = {
    18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True), 101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}  # fmt: skip
EXPANSION = 4  # a bottleneck's output has so many times the channels of its middle


class Block(nn.Module):
    """`relu(x + body(x))`; where the shape changes, x passes a 1 × 1 convolution first. Shape [n, channels, h, w]."""

    def __init__(self, channels: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()

        if bottleneck:
            out = width * EXPANSION
            first, last = [*_conv(channels, width, 1), nn.ReLU(), *_conv(width, width, 3, stride)], _conv(width, out, 1)
        else:
            out = width
            first, last = _conv(channels, width, 3, stride), _conv(width, out, 3)
        self.body = nn.Sequential(*first, nn.ReLU(), *last)

        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv(channels, out, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.shortcut(x) + self.body(x))


def resnet(depth: int = 18, channels: int = 3, classes: int = 1000, width: int = 64) -> nn.Sequential:
    """Return a ResNet for images [n, channels, height, width]; logits [n, classes]. `width`: channels after the stem.

    Raises ValueError for a depth that the paper does not have.
    """
    if depth not in DEPTHS:
        raise ValueError(f"resnet: expected a depth of {', '.join(map(str, DEPTHS))}, got {depth!r}")
    blocks, bottleneck = DEPTHS[depth]

    layers = [*_conv(channels, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    last = width
    for stage, count in enumerate(blocks):
        inner = width * 2**stage
        for number in range(count):
            layers.append(Block(last, inner, 2 if stage and not number else 1, bottleneck))
            last = inner * (EXPANSION if bottleneck else 1)
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)]

    model = nn.Sequential(*layers)
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    return model


def _conv(channels: int, out: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(out)]
