# %% [markdown]
# # Lab: from Seq2Seq to attention, step by step
#
# The lab of deck 003. Fill in `___`; the cell after a blank checks it and says what is wrong. Nothing is downloaded. The whole lab takes about
# fifteen minutes of machine time on two cores; with `FAST=1` in the environment, seconds.
#
# This notebook is written by `python -m tools.lab` from `docs/course/lab_003.py`; there is one with solutions beside it.

# %%
import os
import tempfile
from pathlib import Path

import heedful  # before torch
import torch
from torch import nn
from torch.nn.functional import cross_entropy

FAST = bool(int(os.environ.get("FAST", "0")))
STEPS = 3 if FAST else 600
torch.manual_seed(0)
work = Path(tempfile.mkdtemp())


def check(name, is_right, hint):
    """Print whether a step is right, or stop with a hint."""
    if not is_right:
        raise AssertionError(f"{name}: {hint}")
    print(f"{name}: right")


# %% [markdown]
# ## 1. Data and vocabulary
#
# Latin sentences of a grammar inside heedful, and their translations. Predict: how many different English words are there?

# %%
from heedful.data.sources import SyntheticPairsConfig

NUM_PAIRS = 300 if FAST else 4000
splits = {"train": NUM_PAIRS, "test": 100}
data = {
    split: [
        (pair.source.split(), pair.target.split())
        for pair in SyntheticPairsConfig(name="latin", split=split, num_examples=size).stream()
    ]
    for split, size in splits.items()
}
for source, target in data["train"][:5]:
    print(" ".join(source), "->", " ".join(target))

# %%
PAD, UNK, BOS, EOS = range(4)


def build_vocabulary(sentences):
    words = sorted({word for sentence in sentences for word in sentence})
    return {word: index for index, word in enumerate(words, start=4)}


def encode(sentence, vocabulary):
    """Return ids: UNK for unknown words, EOS at the end."""
    return [vocabulary.get(word, UNK) for word in sentence] + [EOS]  # blank


sources = build_vocabulary(source for source, _ in data["train"])
targets = build_vocabulary(target for _, target in data["train"])
words = {index: word for word, index in targets.items()}
print(len(sources), "Latin and", len(targets), "English words")

# %%
found = encode(["dragon"], targets)
check("encode", found == [UNK, EOS], f"an unknown word gives {found}: UNK, then EOS is expected")

# %% [markdown]
# ## 2. Batches, mask, and the shift of teacher forcing

# %%


def pad(rows):
    """Return ids (B, S) and the mask: True at words, False at padding."""
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
    mask = ids != PAD  # blank
    return ids, mask


def shift(target):
    """Return decoder inputs, which begin with BOS, for targets that end with EOS."""
    start = torch.full((len(target), 1), BOS)
    return torch.cat([start, target[:, :-1]], 1)  # blank


# %%
ids, mask = pad([[5, 6, EOS], [7, EOS]])
check("mask", mask.tolist() == [[True] * 3, [True, True, False]], "False is at padding alone")
check("shift", shift(ids).tolist() == [[BOS, 5, 6], [BOS, 7, EOS]], "BOS, then all but the last")

# %% [markdown]
# ## 3. Seq2Seq: one vector
#
# c is the last state of the encoder, and the first state of the decoder.

# %%


def draw(split, size, generator):
    """Return a random batch: source ids, their mask, target ids."""
    order = torch.randint(len(data[split]), (size,), generator=generator).tolist()
    pairs = [data[split][place] for place in order]
    source, mask = pad([encode(source, sources) for source, _ in pairs])
    return source, mask, pad([encode(target, targets) for _, target in pairs])[0]


class Encoder(nn.Module):
    """States of a GRU, and the last one of each sentence."""

    def __init__(self, size=128, layers=1, both=False):
        super().__init__()
        self.embedding = nn.Embedding(len(sources) + 4, 64)
        self.rnn = nn.GRU(64, size, layers, batch_first=True, bidirectional=both)

    def forward(self, source, mask):
        states = self.rnn(self.embedding(source))[0]
        return states, states[torch.arange(len(source)), mask.sum(1) - 1]


class Seq2Seq(nn.Module):
    def __init__(self, size=128):
        super().__init__()
        self.encoder = Encoder(size)
        self.embedding = nn.Embedding(len(targets) + 4, 64)
        self.cell = nn.GRUCell(64, size)
        self.output = nn.Linear(size, len(targets) + 4)

    def start(self, source, mask):
        """Return the memory and the first state of the decoder."""
        states, last = self.encoder(source, mask)
        return states, last  # blank

    def step(self, y, state, memory, mask):
        state = self.cell(self.embedding(y), state)
        return self.output(state), state, None

    def forward(self, source, mask, inputs):
        memory, state = self.start(source, mask)
        outputs = []
        for y in inputs.unbind(1):
            logits, state, _ = self.step(y, state, memory, mask)
            outputs.append(logits)
        return torch.stack(outputs, 1)


# %%
model = Seq2Seq()
source, mask, target = draw("train", 4, torch.Generator().manual_seed(0))
memory, state = model.start(source, mask)
check("start", state.shape == (4, 128), f"a state (4, 128) is expected, not {tuple(state.shape)}")

# %% [markdown]
# ## 4. The loss counts no padding

# %%


def loss_of(logits, target):
    """Return the mean cross-entropy of the words."""
    return cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)  # blank


# %%
logits, wider = torch.randn(2, 3, 9), torch.randn(2, 5, 9)
wider[:, :3] = logits
short = torch.tensor([[5, 6, EOS], [7, EOS, PAD]])
long = nn.functional.pad(short, (0, 2), value=PAD)
same = torch.isclose(loss_of(logits, short), loss_of(wider, long))
check("loss", bool(same), "more padding changes the loss: ignore PAD")

# %%


def train(model, steps=STEPS):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for step in range(1, steps + 1):
        source, mask, target = draw("train", 32, generator)
        loss = loss_of(model(source, mask, shift(target)), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


@torch.no_grad()
def translate(model, source, mask, longest=14):
    """Decode greedily; return ids and attention weights, if there are any."""
    memory, state = model.start(source, mask)
    y, outputs, maps = torch.full((len(source),), BOS), [], []
    for _ in range(longest):
        logits, state, weights = model.step(y, state, memory, mask)
        y = logits.argmax(-1)  # blank
        outputs.append(y)
        maps.append(weights)
    return torch.stack(outputs, 1), maps


def texts(ids):
    """Return texts, each up to EOS."""
    rows = [row[: row.index(EOS)] if EOS in row else row for row in ids.tolist()]
    return [" ".join(words.get(index, "?") for index in row) for row in rows]


train(model)

# %% [markdown]
# ## 5. BLEU
#
# Predict: how much will attention add?

# %%
import sacrebleu


def bleu(model):
    model.eval()
    source, mask = pad([encode(source, sources) for source, _ in data["test"]])
    outputs = texts(translate(model, source, mask)[0])
    references = [" ".join(target) for _, target in data["test"]]
    return sacrebleu.corpus_bleu(outputs, [references], tokenize="none", force=True).score


scores = {"Seq2Seq": bleu(model)}
print(scores)

# %% [markdown]
# ## 6. Stacked, in both directions (optional)
#
# What is the size of a state that joins both directions?

# %%
stacked = Encoder(128, layers=2, both=True)
size = stacked(source, mask)[0].size(-1)
expected_size = 2 * 128  # blank

# %%
check("bi-LSTM", size == expected_size, "both directions are concatenated")

# %% [markdown]
# ## 7. Attention
#
# Scores of the state with all encoder states; padding is hidden; softmax; the weighted sum. The context is available at every step.

# %%


class Attentional(Seq2Seq):
    def __init__(self, size=128):
        super().__init__(size)
        self.encoder = Encoder(size // 2, layers=2, both=True)
        self.general = nn.Linear(size, size, bias=False)
        self.cell = nn.GRUCell(64 + size, size)

    def attend(self, state, memory, mask):
        """Return the context (B, D) and the weights (B, S)."""
        scores = torch.einsum("bd,bsd->bs", self.general(state), memory)  # blank
        hidden = scores.masked_fill(~mask, -torch.inf)  # blank
        weights = hidden.softmax(-1)  # blank
        return torch.einsum("bs,bsd->bd", weights, memory), weights

    def step(self, y, state, memory, mask):
        context, weights = self.attend(state, memory, mask)
        state = self.cell(torch.cat([self.embedding(y), context], -1), state)  # blank
        return self.output(state), state, weights


# %%
attentional = Attentional()
memory, state = attentional.start(source, mask)
context, weights = attentional.attend(state, memory, mask)
check("rows", torch.allclose(weights.sum(-1), torch.ones(len(source))), "rows sum to 1")
check("padding", bool((weights[~mask] == 0).all()), "padding gets exactly 0")

# %%
train(attentional)
scores["attention"] = bleu(attentional)
print(scores)

# %% [markdown]
# ## 8. The map of a sentence

# %%
sentence = data["test"][0][0]
ids, mask = pad([encode(sentence, sources)])
outputs, maps = translate(attentional, ids, mask)
for word, row in zip(texts(outputs)[0].split(), maps, strict=False):
    print(f"{word:>12}", *(f"{100 * weight:4.0f}" for weight in row[0].tolist()))

# %% [markdown]
# ## 9. The layer of the slide
#
# `tf.keras.layers.Attention()([query, value])` takes no projections: its scores are dot products. heedful has the same layer.

# %%
from heedful.nn import Attention

query, value = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
layer = Attention()
own = (query @ value.mT).softmax(-1) @ value  # blank

# %%
check("Keras", torch.allclose(layer([query, value]), own, atol=1e-5), "dot products, softmax, sum")

# %% [markdown]
# ## 10. The same with heedful
#
# One command instead of nine sections; every mechanism is a setting.

# %%
from rich.console import Console

pairs = [(" ".join(source), " ".join(target)) for source, target in data["train"]]
heedful.train(
    "bahdanau-2015-small",
    work / "bahdanau",
    pairs=pairs,
    steps=STEPS,
    device="cpu",
    console=Console(quiet=True),
)
translator = heedful.load(work / "bahdanau", device="cpu")
translator.translate(" ".join(sentence)).text

# %% [markdown]
# ## 11. Transfer from a Hugging Face folder (optional)
#
# Which parameters should learn? The folder is written on the spot, with random parameters; put the path of a real one in its place. The notebook
# [transfer](../notebooks/transfer.ipynb) goes on from here.

# %%
from transformers import BertConfig, BertModel

settings = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
bert = BertModel(BertConfig(vocab_size=60, intermediate_size=64, **settings))
bert.save_pretrained(work / "bert")
bert = BertModel.from_pretrained(work / "bert")
for name, parameter in bert.named_parameters():
    is_tuned = "layer.2." in name  # blank
    parameter.requires_grad_(is_tuned)
classifier = nn.Linear(32, 2)
classifier(bert(torch.randint(60, (4, 7))).last_hidden_state[:, 0]).sum().backward()

# %%
tuned = {name for name, parameter in bert.named_parameters() if parameter.grad is not None}
is_top = bool(tuned) and all("layer.2." in name for name in tuned)
check("transfer", is_top, "only the top layer has gradients")

# %% [markdown]
# ## 12. What you saw
#
# Write three sentences: what did attention change, how do you know, and which of your predictions was wrong? Then compare more systems:
# `heedful compare --data latin --recipes seq2seq-2014-small,bahdanau-2015-small,transformer-2017-tiny --minutes 2`.
