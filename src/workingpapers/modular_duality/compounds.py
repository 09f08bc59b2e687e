"""Networks made of modules, and the modules that a torch network is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from torch import Tensor, nn
from torch.func import functional_call

from workingpapers.modular_duality.modules import (
    GELU,
    GELU_SLOPE,
    Abs,
    ApplyScores,
    Atom,
    AttentionQK,
    AvgPool,
    Bias,
    CausalMask,
    Concatenation,
    Conv2D,
    Embed,
    Flatten,
    Identity,
    Linear,
    MeanSubtract,
    MergeHeads,
    Module,
    ReLU,
    RMSDivide,
    RoPE,
    Scale,
    Softmax,
    SplitHeads,
    check_count,
    check_length,
    check_number,
)

__all__ = [
    "GPT",
    "MLP",
    "Attention",
    "ResCNN",
    "ResMLP",
    "Residual",
    "TorchNetwork",
    "from_torch",
    "residual",
]

IMAGE = (-3, -2, -1)  # channels, height, width


def MLP(d_out: int, d_in: int, width: int, depth: int) -> Module:
    """Build a ReLU network with ``depth`` matrices.

    Parameters
    ----------
    d_out, d_in, width : int
        Sizes of output, input and the layers between, at least 1.
    depth : int
        Number of matrices, at least 2.

    Returns
    -------
    Module

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_count("depth", depth, low=2)
    hidden = (ReLU() @ Linear(width, width)) ** (depth - 2)
    return Linear(d_out, width) @ hidden @ ReLU() @ Linear(width, d_in)


def residual(residue: Module, weight: float) -> Module:
    """Build ``(1 - weight) * Identity() + weight * residue``.

    If the residue has sensitivity at most 1, so has this, and so have any number of them in a
    row: the learning rate transfers over depth as well.

    Parameters
    ----------
    residue : Module
        With an output of the shape of its input.
    weight : float
        In (0, 1]; at 1 this is the residue itself.

    Returns
    -------
    Module

    Raises
    ------
    TypeError, ValueError
        If ``weight`` is not as described.
    """
    if not 0 < check_number("weight", weight) <= 1:
        raise ValueError(f"weight must be in (0, 1]; got {weight}")
    return residue if weight == 1 else (1 - weight) * Identity() + weight * residue


def ResMLP(
    d_out: int,
    d_in: int,
    width: int,
    num_blocks: int,
    block_depth: int = 2,
    blocks_mass: float = 1.0,
) -> Module:
    """Build a residual network on vectors, of any depth.

    Parameters
    ----------
    d_out, d_in, width : int
        Sizes of output, (flattened) input and the layers between, at least 1.
    num_blocks, block_depth : int
        Number n of blocks, each ``(1 - 1/n) Identity + 1/n residue``, and of matrices in a
        residue, at least 1. A layer of a residue is ``MeanSubtract @ Abs @ Linear @ RMSDivide``.
    blocks_mass : float, default 1.0
        Mass of all blocks together, above 0; first and last layer have mass 1.

    Returns
    -------
    Module

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    layer = MeanSubtract() @ Abs() @ Linear(width, width) @ RMSDivide()
    blocks = _residual_blocks(layer, num_blocks, block_depth, blocks_mass)
    return Linear(d_out, width) @ blocks @ Linear(width, d_in) @ Flatten()


def ResCNN(
    d_out: int,
    d_in: int,
    width: int,
    num_blocks: int,
    block_depth: int = 2,
    blocks_mass: float = 20.0,
    kernel: int = 3,
) -> Module:
    """Build a residual network on images: `ResMLP` with convolutions.

    Parameters
    ----------
    d_out, d_in, width : int
        Number of outputs, of channels of the image, and of the layers between, at least 1.
    num_blocks, block_depth : int
        As in `ResMLP`; RMSDivide and MeanSubtract are over channels and pixels.
    blocks_mass : float, default 20.0
        Mass of all blocks together, above 0; first and last layer have mass 1.
    kernel : int, default 3
        Side of the kernels, odd.

    Returns
    -------
    Module
        From (batch, d_in, height, width) to (batch, d_out), by global average pooling.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    layer = MeanSubtract(IMAGE) @ Abs() @ Conv2D(width, width, kernel) @ RMSDivide(IMAGE)
    blocks = _residual_blocks(layer, num_blocks, block_depth, blocks_mass)
    return Linear(d_out, width) @ AvgPool() @ blocks @ Conv2D(width, d_in, kernel)


def Attention(
    heads: int,
    d_embed: int,
    d_query: int,
    d_value: int,
    scale: float = 1.0,
    causal: bool = True,
) -> Module:
    """Build self-attention with rotary positions and scores scaled by 1/d_query.

    The 1/3 on the values makes up for the three paths by which the input comes in.

    Parameters
    ----------
    heads, d_embed, d_query, d_value : int
        Number of heads; sizes of a token's vector, and of a head's queries and values. At least
        1, ``d_query`` even.
    scale : float, default 1.0
        Sharpness of the softmax, above 0.
    causal : bool, default True
        Whether a position sees earlier ones only.

    Returns
    -------
    Module
        From (..., time, d_embed) to the same, with atoms in the order V, Q, K, W and sensitivity
        ``(1 + 2 scale) / 3``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_count("d_query", d_query)
    if d_query % 2:
        raise ValueError(f"d_query must be even, for RoPE turns pairs; got {d_query}")
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be a bool; got {causal!r}")
    queries, keys, values = (
        SplitHeads(heads) @ Linear(heads * size, d_embed) for size in (d_query, d_query, d_value)
    )
    mask = CausalMask() if causal else Identity()
    scores = Softmax(scale) @ mask @ AttentionQK() @ RoPE() @ (queries, keys)
    mixed = (1 / 3 * ApplyScores()) @ (values, scores)
    return Linear(d_embed, heads * d_value) @ MergeHeads() @ mixed


def GPT(
    vocabulary: int,
    heads: int,
    d_embed: int,
    d_query: int,
    d_value: int,
    num_blocks: int,
    blocks_mass: float = 5.0,
    scale: float = 1.0,
    final_scale: float = 1.0,
) -> Module:
    """Build a small language model: tokens to vectors, blocks of attention and MLP, logits.

    Parameters
    ----------
    vocabulary : int
        Number of tokens, at least 1.
    heads, d_embed, d_query, d_value : int
        As in `Attention`.
    num_blocks : int
        Number n of blocks, at least 1. Attention and MLP of a block are each added to the stream
        with weight ``1 / 2n``.
    blocks_mass : float, default 5.0
        Mass of all blocks together, above 0; first and last layer have mass 1.
    scale : float, default 1.0
        Sharpness of attention's softmax, above 0.
    final_scale : float, default 1.0
        Factor of the logits, not 0: a part of the model, for logits of RMS 1 are nearly uniform.

    Returns
    -------
    Module
        From integer tokens (..., time) to logits (..., time, vocabulary).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_count("num_blocks", num_blocks)
    attention = Attention(heads, d_embed, d_query, d_value, scale)
    mlp = Linear(d_embed, 4 * d_embed) @ GELU() @ Linear(4 * d_embed, d_embed)
    weight = 1 / (2 * num_blocks)
    block = residual(mlp, weight) @ residual(attention, weight)
    blocks = (block**num_blocks).tare(check_number("blocks_mass", blocks_mass, low=0))
    return final_scale * Linear(vocabulary, d_embed) @ blocks @ Embed(vocabulary, d_embed)


def _residual_blocks(layer: Module, num_blocks: int, block_depth: int, mass: float) -> Module:
    check_count("num_blocks", num_blocks)
    check_count("block_depth", block_depth)
    block = residual(layer**block_depth, 1 / num_blocks)
    return (block**num_blocks).tare(check_number("blocks_mass", mass, low=0))


# Reading networks of torch


class Residual(nn.Module):
    """A torch module ``(1 - weight) x + weight body(x)``, which `from_torch` can read.

    Parameters
    ----------
    body : torch.nn.Module
        With an output of the shape of its input.
    weight : float
        In (0, 1].

    Raises
    ------
    TypeError, ValueError
        If ``weight`` is not as described.
    """

    def __init__(self, body: nn.Module, weight: float) -> None:
        super().__init__()
        if not 0 < check_number("weight", weight) <= 1:
            raise ValueError(f"weight must be in (0, 1]; got {weight}")
        self.body = body
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        """Mix the input with the body's output."""
        return (1 - self.weight) * x + self.weight * self.body(x)


@dataclass(frozen=True, eq=False)
class TorchNetwork(Module):
    """A torch network as a module: it computes as torch does, and has the norm of a tree.

    Made by `from_torch`.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    tree : Module
        Its atoms are the parameters; it says how they share a change, and computes nothing.
    names : tuple of str
        The parameters' names in the network, in the order of the atoms.
    """

    model: nn.Module
    tree: Module
    names: tuple[str, ...]

    @property
    def mass(self) -> float:
        """Mass of the tree."""
        return self.tree.mass

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the tree."""
        return self.tree.sensitivity

    @property
    def smooth(self) -> bool:
        """Whether the tree is."""
        return self.tree.smooth

    @property
    def children(self) -> tuple[Module, ...]:
        """The tree."""
        return (self.tree,)

    def parameters(self) -> list[nn.Parameter]:
        """List the network's parameters in the order of the atoms, as `DualizedSGD` takes them."""
        return [self.model.get_parameter(name) for name in self.names]

    def forward(self, x, weights):
        """Call the torch network with these weights in the place of its own."""
        check_length(self, weights)
        return functional_call(self.model, dict(zip(self.names, weights, strict=True)), (x,))

    def allot(self, size):
        """Divide as the tree does."""
        return self.tree.allot(size)

    def _times_mass(self, factor):
        return replace(self, tree=self.tree._times_mass(factor))


def from_torch(model: nn.Module, atoms: Mapping[str, Atom] | None = None) -> TorchNetwork:
    """Read the modular norm of a torch network from its layers.

    `Sequential` is composition, and `Residual` of this package a residual. Linear, Embedding,
    Conv2d and the normalising layers are atoms, with an atom of its own for a bias. A module
    without parameters has sensitivity 1 (GELU has its 1.129). Any other module is taken for its
    parts side by side, which share by mass alone; a matrix of its own is a `Linear`, other
    parameters of its own need a name in ``atoms``.

    Parameters
    ----------
    model : torch.nn.Module
        The network. It is not changed.
    atoms : mapping of str to Atom, optional
        The atoms of some parameters, by the names of ``model.named_parameters()``. A parameter
        that layers share must be here, and counts once, where it comes first.

    Returns
    -------
    TorchNetwork

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, a parameter has no known norm, or an atom does not
        have its parameter's shape.

    Examples
    --------
    >>> network = from_torch(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)))
    >>> network.shares
    (0.25, 0.25, 0.25, 0.25)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    given, known = dict(atoms or {}), dict(model.named_parameters())
    if missing := given.keys() - known.keys():
        raise ValueError(f"atoms names {sorted(missing)}; the parameters are {list(known)}")
    if not known:
        raise ValueError("model must have parameters; it has none")
    reader = _Reader(given, {})
    return TorchNetwork(model, reader.read(model, ""), tuple(reader.found.values()))


@dataclass(frozen=True)
class _Reader:
    """Builds the tree, and notes the names of the parameters in the order of its atoms."""

    given: dict[str, Atom]
    found: dict[nn.Parameter, str]

    def read(self, layer: nn.Module, prefix: str) -> Module:
        """Turn a torch module into a tree."""
        if isinstance(layer, nn.Sequential):
            return _in_order(self._children(layer, prefix))
        if isinstance(layer, Residual):
            return residual(self.read(layer.body, f"{prefix}body."), layer.weight)
        if isinstance(layer, nn.GELU):
            return GELU_SLOPE * Identity()
        if isinstance(layer, KNOWN):
            return _in_order(self._own(layer, prefix))
        parts = [*self._own(layer, prefix), *self._children(layer, prefix)]
        return Concatenation(tuple(part for part in parts if part.atoms)) if parts else Identity()

    def _children(self, layer: nn.Module, prefix: str) -> list[Module]:
        return [self.read(part, f"{prefix}{name}.") for name, part in layer.named_children()]

    def _own(self, layer: nn.Module, prefix: str) -> list[Module]:
        return [
            self._atom(prefix + name, parameter, _usual_atom(layer, name, parameter))
            for name, parameter in layer.named_parameters(recurse=False)
        ]

    def _atom(self, name: str, parameter: nn.Parameter, usual: Atom | None) -> Module:
        if (first := self.found.get(parameter)) is not None:
            if first not in self.given:
                raise ValueError(f"parameters {first!r} and {name!r} are one; give it in atoms")
            return Identity()
        self.found[parameter] = name
        atom, shape = self.given.get(name, usual), tuple(parameter.shape)
        if atom is None:
            raise ValueError(f"parameter {name!r}, shape {shape}, has no known norm; see atoms")
        if not isinstance(atom, Atom):
            raise TypeError(f"atoms[{name!r}] must be an Atom; got {atom!r}")
        atom.check_shape(f"parameter {name!r}", parameter)
        if len(shape) != len(atom.shape):
            raise ValueError(f"parameter {name!r} of shape {shape} has batches; {atom} has not")
        return atom


NORMALIZATIONS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)
KNOWN = (nn.Linear, nn.Embedding, nn.Conv2d, *NORMALIZATIONS)


def _in_order(parts: list[Module]) -> Module:
    return reduce(lambda inner, outer: outer @ inner, parts, Identity())


def _usual_atom(layer: nn.Module, name: str, parameter: nn.Parameter) -> Atom | None:
    """Return the atom of a layer's own parameter, or None where there is no usual one."""
    if isinstance(layer, KNOWN) and name == "bias":
        return Bias(parameter.numel())
    if isinstance(layer, NORMALIZATIONS):
        return Scale(parameter.numel())
    if isinstance(layer, nn.Embedding):
        return Embed(*parameter.shape)
    if isinstance(layer, nn.Conv2d):
        square = layer.groups == 1 and parameter.shape[-1] == parameter.shape[-2]
        return Conv2D(*parameter.shape[:-1], padding=0) if square else None
    return Linear(*parameter.shape) if parameter.ndim == 2 else None
