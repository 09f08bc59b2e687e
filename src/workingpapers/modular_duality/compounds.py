"""Networks made of modules, and the modules that a torch network is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from torch import Tensor, nn
from torch.func import functional_call

from workingpapers.arguments import check_integer, check_positive, check_type
from workingpapers.modular_duality.atoms import Atom, Bias, Conv2D, Embed, Linear, Scale
from workingpapers.modular_duality.bonds import (
    GELU,
    GELU_SLOPE,
    Abs,
    ApplyScores,
    AttentionQK,
    AvgPool,
    CausalMask,
    Flatten,
    MeanSubtract,
    MergeHeads,
    ReLU,
    RMSDivide,
    RoPE,
    Softmax,
    SplitHeads,
)
from workingpapers.modular_duality.modules import Concatenation, Identity, Module, check_length

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
    ValueError
        If an argument is not as described.
    """
    depth = check_integer("depth", depth, low=2)
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
        If an argument is not as described.
    """
    check_type("residue", residue, Module)
    weight = _check_weight(weight)
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

    Its sensitivity 1 is conventional, not guaranteed, as is that of `RMSDivide`. So it need not be
    well-normed: narrow or shallow ones move by more than the modular norm at their own initial
    weights.

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

    Its sensitivity 1 is conventional, not guaranteed, as are those of `RMSDivide` and
    `MeanSubtract` over images: it need not be well-normed.

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

    The 1/3 on the values makes up for the three paths by which the input comes in. With more than
    one head the sensitivity is conventional, not guaranteed, as is that of `SplitHeads`.

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
    if check_integer("d_query", d_query) % 2:
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
    num_blocks = check_integer("num_blocks", num_blocks)
    attention = Attention(heads, d_embed, d_query, d_value, scale)
    mlp = Linear(d_embed, 4 * d_embed) @ GELU() @ Linear(4 * d_embed, d_embed)
    weight = 1 / (2 * num_blocks)
    block = residual(mlp, weight) @ residual(attention, weight)
    blocks = (block**num_blocks).tare(check_positive("blocks_mass", blocks_mass))
    return final_scale * Linear(vocabulary, d_embed) @ blocks @ Embed(vocabulary, d_embed)


def _residual_blocks(layer: Module, num_blocks: int, block_depth: int, mass: float) -> Module:
    num_blocks = check_integer("num_blocks", num_blocks)
    block = residual(layer ** check_integer("block_depth", block_depth), 1 / num_blocks)
    return (block**num_blocks).tare(check_positive("blocks_mass", mass))


def _check_weight(weight: float) -> float:
    if check_positive("weight", weight) > 1:
        raise ValueError(f"weight must be in (0, 1]; got {weight}")
    return float(weight)


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
        self.body = body
        self.weight = _check_weight(weight)

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
    Conv2d and the normalising layers are atoms, with an atom of its own for a bias. Any other
    module, and a subclass of `Sequential` or `Residual` with a ``forward`` of its own, is taken
    for its parts side by side, which share by mass alone; a matrix of its own is a `Linear`, other
    parameters of its own need a name in ``atoms``.

    A module without parameters is *assumed* to have sensitivity 1, but GELU has its 1.129. That is
    too little for activations that are steeper somewhere, such as ``LeakyReLU(5)`` and
    ``ELU(10)``, for dropout while training (1 / (1 - p)), and for pooling by the maximum. The
    normalising layers are assumed to have it too, which is conventional (see `RMSDivide`).

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
        If an argument is not as described, a parameter has no known norm or is of no layer that
        is read, or an atom does not have its parameter's shape.

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
    tree = reader.read(model, "")
    if lost := [name for name, parameter in known.items() if parameter not in reader.found]:
        raise ValueError(f"parameters {lost} are of no layer that can be read")
    return TorchNetwork(model, tree, tuple(reader.found.values()))


@dataclass(frozen=True)
class _Reader:
    """Builds the tree, and notes the names of the parameters in the order of its atoms."""

    given: dict[str, Atom]
    found: dict[nn.Parameter, str]

    def read(self, layer: nn.Module, prefix: str) -> Module:
        """Turn a torch module into a tree."""
        if _computes_as(layer, nn.Sequential):
            return _in_order(self._children(layer, prefix))
        if _computes_as(layer, Residual):
            return residual(self.read(layer.body, f"{prefix}body."), layer.weight)
        if _computes_as(layer, nn.GELU):
            return GELU_SLOPE * Identity()
        if isinstance(layer, KNOWN):  # with what it may hold within, such as a parametrisation
            return _in_order(self._own(layer, prefix, recurse=True))
        parts = [*self._own(layer, prefix), *self._children(layer, prefix)]
        return Concatenation(tuple(part for part in parts if part.atoms)) if parts else Identity()

    def _children(self, layer: nn.Module, prefix: str) -> list[Module]:
        parts = layer._modules.items()  # named_children() leaves out what comes again
        return [self.read(part, f"{prefix}{name}.") for name, part in parts if part is not None]

    def _own(self, layer: nn.Module, prefix: str, recurse: bool = False) -> list[Module]:
        named = layer.named_parameters(recurse=recurse, remove_duplicate=False)
        return [
            self._atom(prefix + name, parameter, _usual_atom(layer, name, parameter))
            for name, parameter in named
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


def _computes_as(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Say whether the layer is of that kind, and has not a forward pass of its own."""
    return isinstance(layer, kind) and type(layer).forward is kind.forward


def _usual_atom(layer: nn.Module, name: str, parameter: nn.Parameter) -> Atom | None:
    """Return the atom of a layer's own parameter, or None where there is no usual one."""
    if "." in name:
        return None
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
