"""Random checkpoints with the tensor names and layouts of JoeyNMT and OpenNMT-py, and the forward
passes of both programs, written again in plain torch.

Both were compared with the programs themselves (JoeyNMT 2.3.0, OpenNMT-py 3.5.1) through the
importers: hidden states, attention and log-probabilities agree to 2e-6, greedy outputs exactly.
"""

import argparse
import math

import torch
import yaml
from torch import nn
from torch.nn.functional import gelu, layer_norm, linear, relu, silu

WORDS = [f"w{index}" for index in range(9)]
SIZE, NUM_HEADS, HIDDEN = 8, 2, 12
ACTIVATIONS = {"relu": relu, "gelu": gelu, "swish": silu, "silu": silu, "gated-gelu": gelu}


def sinusoids(length, size):
    """sin and cos in turn, as both programs tabulate them."""
    table = torch.zeros(length, size, dtype=torch.float64)
    rates = torch.exp(torch.arange(0, size, 2).double() * -(math.log(10000.0) / size))
    table[:, 0::2] = torch.sin(torch.arange(length).unsqueeze(1) * rates)
    table[:, 1::2] = torch.cos(torch.arange(length).unsqueeze(1) * rates)
    return table


class Tensors(dict):
    """The tensors of a checkpoint; `linear` and `norm` apply a layer by its name."""

    eps = 1e-6

    def linear(self, name, inputs):
        return linear(inputs, self[f"{name}.weight"], self.get(f"{name}.bias"))

    def norm(self, name, inputs):
        weight, bias = self[f"{name}.weight"], self.get(f"{name}.bias")
        if bias is None:  # RMS norm
            scale = inputs.square().mean(dim=-1, keepdim=True).add(self.eps).rsqrt()
            return inputs * scale * weight
        return layer_norm(inputs, weight.shape, weight, bias, eps=self.eps)

    def attend(self, name, names, queries, memory, *, is_causal=False):
        """Return multi-head attention of one sentence (T, D), and the weights of each head."""
        q, k, v, out = names
        heads = []
        num_kv = self[f"{name}.{k}.weight"].size(0) // (SIZE // NUM_HEADS)
        keys, values = (self.linear(f"{name}.{part}", memory).chunk(num_kv, -1) for part in (k, v))
        all_weights = []
        for head, query in enumerate(self.linear(f"{name}.{q}", queries).chunk(NUM_HEADS, -1)):
            group = head * num_kv // NUM_HEADS
            scores = query @ keys[group].T / math.sqrt(query.size(-1))
            if is_causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
            all_weights.append(scores.softmax(dim=-1))
            heads.append(all_weights[-1] @ values[group])
        return self.linear(f"{name}.{out}", torch.cat(heads, -1)), torch.stack(all_weights)

    def rnn(self, name, kind, inputs, state=None, *, layers=2, bidirectional=False):
        """Run torch's own module with these tensors on one sentence (T, E)."""
        size = self[f"{name}.weight_hh_l0"].size(1)
        module = getattr(nn, kind)(
            inputs.size(-1), size, layers, bidirectional=bidirectional, batch_first=True
        ).double()
        prefix = f"{name}."
        module.load_state_dict(
            {key.removeprefix(prefix): value for key, value in self.items() if prefix in key}
        )
        output, final = module(inputs.unsqueeze(0), state)
        return output[0], final


def draw_named(shapes):
    """Draw tensors that fp32 holds exactly, for computation in fp64."""
    return Tensors((name, torch.randn(*shape).mul(0.5).double()) for name, shape in shapes.items())


def affine(name, outputs, inputs, *, bias=True):
    return {f"{name}.weight": (outputs, inputs), **({f"{name}.bias": (outputs,)} if bias else {})}


def norm(name, *, bias=True):
    return {f"{name}.weight": (SIZE,), **({f"{name}.bias": (SIZE,)} if bias else {})}


def rnn_shapes(name, kind, inputs, size, *, layers=2, bidirectional=False):
    module = getattr(nn, kind)(inputs, size, layers, bidirectional=bidirectional)
    return {f"{name}.{key}": tuple(value.shape) for key, value in module.state_dict().items()}


# ----- JoeyNMT 2.3.0

JOEY_TOKENS = ["<unk>", "<pad>", "<s>", "</s>", *WORDS]
JOEY_ATTENTION = ("q_layer", "k_layer", "v_layer", "output_layer")


def joey_transformer_shapes(norm_order, tied):
    shapes = {}
    for side in ("encoder", "decoder"):
        for layer in range(2):
            shapes |= joey_layer_shapes(f"{side}.layers.{layer}", side == "decoder")
        shapes |= norm(f"{side}.layer_norm") if norm_order == "pre" else {}
    tables = ("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight")
    tensors = draw_named(shapes | dict.fromkeys(tables, (len(JOEY_TOKENS), SIZE)))
    for name in tables if tied else ():
        tensors[name] = tensors[tables[0]]
    for side in ("encoder", "decoder"):
        tensors[f"{side}.pe.pe"] = sinusoids(30, SIZE).unsqueeze(0)
    return tensors


def joey_layer_shapes(prefix, is_decoder):
    attentions = ["trg_trg_att", "src_trg_att"] if is_decoder else ["src_src_att"]
    norms = ["x_layer_norm", "dec_layer_norm"] if is_decoder else ["layer_norm"]
    shapes = affine(f"{prefix}.feed_forward.pwff_layer.0", HIDDEN, SIZE)
    shapes |= affine(f"{prefix}.feed_forward.pwff_layer.3", SIZE, HIDDEN)
    for name in attentions:
        for part in JOEY_ATTENTION:
            shapes |= affine(f"{prefix}.{name}.{part}", SIZE, SIZE)
    for name in [*norms, "feed_forward.layer_norm"]:
        shapes |= norm(f"{prefix}.{name}")
    return shapes


def joey_sublayer(tensors, name, order, inputs, function):
    hidden = function(tensors.norm(name, inputs) if order == "pre" else inputs)
    return inputs + hidden if order == "pre" else tensors.norm(name, inputs + hidden)


def joey_transformer(tensors, settings, source, target):
    """Return encoder states, attention (mean over heads) and log-probabilities of one sentence."""
    order, activation = settings["layer_norm"], ACTIVATIONS[settings["activation"]]
    scale = math.sqrt(SIZE) if settings["scale"] else 1.0

    def embed(table, ids):
        return tensors[f"{table}.lut.weight"][ids] * scale + sinusoids(len(ids), SIZE)

    def feed_forward(prefix, inputs):
        name = f"{prefix}.feed_forward"
        return joey_sublayer(
            tensors,
            f"{name}.layer_norm",
            order,
            inputs,
            lambda x: tensors.linear(
                f"{name}.pwff_layer.3", activation(tensors.linear(f"{name}.pwff_layer.0", x))
            ),
        )

    x = embed("src_embed", source)
    for layer in range(2):
        prefix = f"encoder.layers.{layer}"

        def attend(q, name=f"{prefix}.src_src_att"):
            return tensors.attend(name, JOEY_ATTENTION, q, q)[0]

        x = feed_forward(prefix, joey_sublayer(tensors, f"{prefix}.layer_norm", order, x, attend))
    states = tensors.norm("encoder.layer_norm", x) if order == "pre" else x
    y = embed("trg_embed", target)
    for layer in range(2):
        prefix = f"decoder.layers.{layer}"
        weights = []

        def attend_self(q, name=f"{prefix}.trg_trg_att"):
            return tensors.attend(name, JOEY_ATTENTION, q, q, is_causal=True)[0]

        def attend_source(q, name=f"{prefix}.src_trg_att", weights=weights):
            context, found = tensors.attend(name, JOEY_ATTENTION, q, states)
            weights.append(found.mean(dim=0))
            return context

        y = joey_sublayer(tensors, f"{prefix}.x_layer_norm", order, y, attend_self)
        y = joey_sublayer(tensors, f"{prefix}.dec_layer_norm", order, y, attend_source)
        y = feed_forward(prefix, y)
    y = tensors.norm("decoder.layer_norm", y) if order == "pre" else y
    return states, weights[-1], tensors.linear("decoder.output_layer", y).log_softmax(dim=-1)


def joey_recurrent_shapes(settings):
    kind, size = settings["rnn_type"].upper(), settings["hidden_size"]
    memory = 2 * SIZE
    fed = size if settings["input_feeding"] else 0
    shapes = rnn_shapes("encoder.rnn", kind, 5, SIZE, bidirectional=True)
    shapes |= rnn_shapes("decoder.rnn", kind, 6 + fed, size)
    shapes |= affine("decoder.att_vector_layer", size, size + memory)
    shapes |= affine("decoder.attention.key_layer", size, memory, bias=False)
    if settings["attention"] == "bahdanau":
        shapes |= affine("decoder.attention.query_layer", size, size, bias=False)
        shapes |= affine("decoder.attention.energy_layer", 1, size, bias=False)
    if settings["init_hidden"] == "bridge":
        shapes |= affine("decoder.bridge_layer", size, memory)
    count = len(JOEY_TOKENS)
    shapes |= {"src_embed.lut.weight": (count, 5), "trg_embed.lut.weight": (count, 6)}
    return draw_named(shapes | {"decoder.output_layer.weight": (count, size)})


def joey_recurrent(tensors, settings, source, target):
    """Return encoder states, attention and log-probabilities of one sentence."""
    kind, size = settings["rnn_type"].upper(), settings["hidden_size"]
    states, final = tensors.rnn(
        "encoder.rnn", kind, tensors["src_embed.lut.weight"][source], bidirectional=True
    )
    final = final[0] if kind == "LSTM" else final
    summary = torch.cat([final[-2], final[-1]], dim=-1)  # of the top layer
    first = {
        "bridge": lambda: tensors.linear("decoder.bridge_layer", summary).tanh(),
        "last": lambda: summary[:, :size],
        "zero": lambda: summary.new_zeros(1, size),
    }[settings["init_hidden"]]()
    hidden = first.expand(2, 1, size).contiguous()
    state = (hidden, hidden) if kind == "LSTM" else hidden
    feed, weights, features = torch.zeros(size, dtype=torch.float64), [], []
    keys = tensors.linear("decoder.attention.key_layer", states)
    for token in target:
        embedded = tensors["trg_embed.lut.weight"][token]
        inputs = torch.cat([embedded, feed]) if settings["input_feeding"] else embedded
        outputs, state = tensors.rnn("decoder.rnn", kind, inputs.unsqueeze(0), state)
        query = outputs[-1]
        if settings["attention"] == "bahdanau":
            hidden = (tensors.linear("decoder.attention.query_layer", query) + keys).tanh()
            scores = tensors.linear("decoder.attention.energy_layer", hidden).squeeze(-1)
        else:
            scores = keys @ query
        weights.append(scores.softmax(dim=-1))
        both = torch.cat([query, weights[-1] @ states])
        feed = tensors.linear("decoder.att_vector_layer", both).tanh()
        features.append(feed)
    logits = tensors.linear("decoder.output_layer", torch.stack(features))
    return states, torch.stack(weights), logits.log_softmax(dim=-1)


def write_joey(folder, tensors, model, *, data=None, testing=None, specials=JOEY_TOKENS):
    """Write a model folder; return the checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    side = {"lang": "xx", "level": "word"}
    config = {
        "name": "tiny",
        "model": model,
        "data": {"src": dict(side), "trg": dict(side), **(data or {})},
        "testing": testing or {"beam_size": 3, "beam_alpha": -1, "max_output_length": 8},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for name in ("src", "trg"):
        (folder / f"{name}_vocab.txt").write_text("\n".join(specials) + "\n")
    path = folder / "10.ckpt"
    state = {name: value.float() for name, value in tensors.items()}
    torch.save({"model_state": state, "stats_state": {"steps": 10}}, path)
    return path


# ----- OpenNMT-py 3.5.1

ONMT_TOKENS = ["<unk>", "<blank>", "<s>", "</s>", *WORDS]
ONMT_ATTENTION = ("linear_query", "linear_keys", "linear_values", "final_linear")
ONMT_TABLES = [
    f"{side}.embeddings.make_embedding.emb_luts.0.weight" for side in ("encoder", "decoder")
]


def onmt_transformer_shapes(options):
    gated = options["pos_ffn_activation_fn"] in ("silu", "gated-gelu")
    has_bias, is_rms = options["add_qkvbias"], options["layer_norm"] == "rms"
    kv_size = (options["num_kv"] or NUM_HEADS) * SIZE // NUM_HEADS
    sizes = dict(zip(ONMT_ATTENTION, (SIZE, kv_size, kv_size, SIZE), strict=True))
    shapes = {}
    for side, stack in (("encoder", "transformer"), ("decoder", "transformer_layers")):
        for layer in range(2):
            prefix = f"{side}.{stack}.{layer}"
            for name in ["self_attn"] if side == "encoder" else ["self_attn", "context_attn"]:
                for part, size in sizes.items():
                    shapes |= affine(f"{prefix}.{name}.{part}", size, SIZE, bias=has_bias)
            norms = ["layer_norm"] if side == "encoder" else ["layer_norm_1", "layer_norm_2"]
            for name in [*norms, "feed_forward.layer_norm"]:
                shapes |= norm(f"{prefix}.{name}", bias=not is_rms)
            for name in ("w_1", "w_3")[: 1 + gated]:
                shapes |= affine(f"{prefix}.feed_forward.{name}", HIDDEN, SIZE, bias=has_bias)
            shapes |= affine(f"{prefix}.feed_forward.w_2", SIZE, HIDDEN, bias=has_bias)
        shapes |= norm(f"{side}.layer_norm", bias=not is_rms)
    return shapes


def onmt_transformer(tensors, options, source, target):
    """Return encoder states, attention (mean over heads) and log-probabilities of one sentence."""
    activation = ACTIVATIONS[options["pos_ffn_activation_fn"]]

    def embed(table, ids):
        return tensors[table][ids] * math.sqrt(SIZE) + sinusoids(len(ids), SIZE)

    def feed_forward(prefix, inputs):
        name = f"{prefix}.feed_forward"
        x = tensors.norm(f"{name}.layer_norm", inputs)
        hidden = activation(tensors.linear(f"{name}.w_1", x))
        if f"{name}.w_3.weight" in tensors:
            hidden = hidden * tensors.linear(f"{name}.w_3", x)
        return inputs + tensors.linear(f"{name}.w_2", hidden)

    x = embed(ONMT_TABLES[0], source)
    for layer in range(2):
        prefix = f"encoder.transformer.{layer}"
        q = tensors.norm(f"{prefix}.layer_norm", x)
        x = feed_forward(prefix, x + tensors.attend(f"{prefix}.self_attn", ONMT_ATTENTION, q, q)[0])
    states = tensors.norm("encoder.layer_norm", x)
    y = embed(ONMT_TABLES[1], target)
    for layer in range(2):
        prefix = f"decoder.transformer_layers.{layer}"
        q = tensors.norm(f"{prefix}.layer_norm_1", y)
        name = f"{prefix}.self_attn"
        y = y + tensors.attend(name, ONMT_ATTENTION, q, q, is_causal=True)[0]
        q = tensors.norm(f"{prefix}.layer_norm_2", y)
        context, weights = tensors.attend(f"{prefix}.context_attn", ONMT_ATTENTION, q, states)
        y = feed_forward(prefix, y + context)
    logits = tensors.linear("generator", tensors.norm("decoder.layer_norm", y))
    return states, weights.mean(dim=0), logits.log_softmax(dim=-1)


def onmt_recurrent_shapes(options):
    kind, directions = options["rnn_type"], 2 if options["encoder_type"] == "brnn" else 1
    size = SIZE // directions
    shapes = rnn_shapes("encoder.rnn", kind, 5, size, bidirectional=directions == 2)
    if options["bridge"]:
        for index in range(2 if kind == "LSTM" else 1):
            shapes |= affine(f"encoder.bridge.{index}", 2 * size, 2 * size)
    decoder = rnn_shapes("decoder.rnn", kind, 6 + SIZE * options["input_feed"], SIZE)
    if options["input_feed"]:  # cells of its own: layers.0.weight_ih
        decoder = {
            f"decoder.rnn.layers.{name[-1]}.{name.split('.')[-1][:-3]}": shape
            for name, shape in decoder.items()
        }
    shapes |= decoder
    is_mlp = options["global_attention"] == "mlp"
    shapes |= affine("decoder.attn.linear_out", SIZE, 2 * SIZE, bias=is_mlp)
    if is_mlp:
        shapes |= affine("decoder.attn.linear_query", SIZE, SIZE)
        shapes |= affine("decoder.attn.linear_context", SIZE, SIZE, bias=False)
        shapes |= affine("decoder.attn.v", 1, SIZE, bias=False)
    if options["global_attention"] == "general":
        shapes |= affine("decoder.attn.linear_in", SIZE, SIZE, bias=False)
    return shapes


def onmt_first_states(tensors, options, final):
    """Return the first state of the decoder from (layers * directions, 1, size) of the encoder."""
    parts = list(final) if options["rnn_type"] == "LSTM" else [final]
    if options["bridge"]:
        parts = [onmt_bridge(tensors, index, part) for index, part in enumerate(parts)]
    if options["encoder_type"] == "brnn":
        parts = [torch.cat([part[0::2], part[1::2]], dim=2) for part in parts]
    return parts


def onmt_bridge(tensors, index, states):
    """Apply the bridge to rows of two states each, whatever directions these are of."""
    rows = states.transpose(0, 1).reshape(-1, 2 * states.size(-1))
    projected = tensors.linear(f"encoder.bridge.{index}", rows).relu()
    return projected.view(1, -1, states.size(-1)).transpose(0, 1)


def onmt_recurrent(tensors, options, source, target):
    """Return encoder states, attention and log-probabilities of one sentence."""
    kind = options["rnn_type"]
    states, final = tensors.rnn(
        "encoder.rnn",
        kind,
        tensors[ONMT_TABLES[0]][source],
        bidirectional=options["encoder_type"] == "brnn",
    )
    state = onmt_first_states(tensors, options, final)
    cell_class = nn.LSTMCell if kind == "LSTM" else nn.GRUCell
    cells = []
    for layer in range(2):
        cell = cell_class(6 + SIZE * options["input_feed"] if layer == 0 else SIZE, SIZE).double()
        name = (
            f"decoder.rnn.layers.{layer}.{{}}"
            if options["input_feed"]
            else f"decoder.rnn.{{}}_l{layer}"
        )
        cell.load_state_dict({key: tensors[name.format(key)] for key in cell.state_dict()})
        cells.append(cell)
    layers = [[part[layer] for part in state] for layer in range(2)]
    feed, weights, features = torch.zeros(1, SIZE, dtype=torch.float64), [], []
    for token in target:
        x = tensors[ONMT_TABLES[1]][token].unsqueeze(0)
        x = torch.cat([x, feed], dim=-1) if options["input_feed"] else x
        for layer, cell in enumerate(cells):
            new = cell(x, tuple(layers[layer]) if kind == "LSTM" else layers[layer][0])
            layers[layer] = list(new) if kind == "LSTM" else [new]
            x = layers[layer][0]
        feed, found = onmt_attend(tensors, options, x, states)
        weights.append(found)
        features.append(feed)
    logits = tensors.linear("generator", torch.cat(features))
    return states, torch.cat(weights), logits.log_softmax(dim=-1)


def onmt_attend(tensors, options, query, states):
    kind = options["global_attention"]
    if kind == "mlp":
        hidden = tensors.linear("decoder.attn.linear_query", query) + tensors.linear(
            "decoder.attn.linear_context", states
        )
        scores = tensors.linear("decoder.attn.v", hidden.tanh()).T
    else:
        q = tensors.linear("decoder.attn.linear_in", query) if kind == "general" else query
        scores = q @ states.T
    weights = scores.softmax(dim=-1)
    features = tensors.linear("decoder.attn.linear_out", torch.cat([weights @ states, query], -1))
    return features if kind == "mlp" else features.tanh(), weights


def write_onmt(path, tensors, options, **changes):
    """Write a checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {name: value.float() for name, value in tensors.items()}
    generator = {
        name.removeprefix("generator."): state[name] for name in state if "generator" in name
    }
    checkpoint = {
        "model": {name: value for name, value in state.items() if "generator" not in name},
        "generator": generator,
        "vocab": {"src": ONMT_TOKENS, "tgt": ONMT_TOKENS, "data_task": "seq2seq"},
        "opt": argparse.Namespace(**options),
        "optim": {"training_step": 10},
    }
    torch.save(checkpoint | changes, path)
    return path
