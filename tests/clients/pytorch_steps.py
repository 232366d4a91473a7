"""The five steps of a user with PyTorch for ROCm: a tensor operation, a matrix product, a convolution (MIOpen), a small model,
ResNet-18 with random weights. NOT RUN: no build of PyTorch for ROCm is to be had where this project is built; on a machine
that has one, run it with and without `xcli run --` in front and compare what it prints.
"""

import hashlib

import torch


def show(name, tensor):
    values = tensor.detach().float().cpu().contiguous()
    digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]
    print(f"{name}: {tuple(values.shape)} {digest} sum {values.sum().item():.3f}")


def main():
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = torch.device("cuda")
    x = torch.randn(1 << 20, device=device)
    show("tensor operation", torch.relu(x * 2 + 1))
    a, b = torch.randn(512, 512, device=device), torch.randn(512, 512, device=device)
    show("matrix product", a @ b)
    image = torch.randn(8, 3, 64, 64, device=device)
    show("convolution", torch.nn.Conv2d(3, 16, 3, padding=1).to(device)(image))
    model = torch.nn.Sequential(torch.nn.Linear(512, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(device)
    show("small model", model(a))
    from torchvision.models import resnet18

    with torch.no_grad():
        show("ResNet-18", resnet18(weights=None).to(device).eval()(torch.randn(2, 3, 224, 224, device=device)))


main()
