"""Bad words become the tokens that spell them, with a space before them or without, whatever the tokenizer does."""

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from schemas.errors import InvalidJob, RowFailed
from schemas.job import JobSpec, RowParams
from tests.engine.tiny_folder import tiny_tokenizer
from workers.engine import token_options
from workers.engine.token_options import bad_word_token_ids, check_job_tokens, check_row_tokens

pytestmark = pytest.mark.engine

SENTENCEPIECE = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])


def characters(normalizer=None, pre_tokenizer=None, **options):
    """A token for each character, those that stand for a space among them; <s> comes first if asked for."""
    letters = ["<s>", "\u2581", "\u0120", " ", *map(chr, range(33, 127))]
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", **options)


def spelled(words, tokenizer):
    sequences = bad_word_token_ids(words, tokenizer)
    return [" ".join(tokenizer.convert_ids_to_tokens(list(ids))) for ids in sequences]


def test_a_word_is_banned_without_and_with_a_space_and_no_special_tokens():
    tokenizer = characters(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False))
    assert spelled(["no", " go"], tokenizer) == ["n o", "\u0120 n o", "g o", "\u0120 g o"]


@pytest.mark.parametrize(
    "tokenizer",
    [
        characters(SENTENCEPIECE),
        characters(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="always")),
        characters(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True), add_prefix_space=True),
    ],
    ids=["sentencepiece", "metaspace", "byte-level"],
)
def test_a_tokenizer_that_puts_a_space_there_itself_never_makes_two(tokenizer):
    (sequence,) = spelled(["no"], tokenizer)
    assert sequence in ("\u2581 n o", "\u0120 n o")


def test_a_tokenizer_that_knows_no_spaces_yields_a_word_once():
    assert spelled(["no"], characters(normalizers.Replace(" ", ""))) == ["n o"]


def test_spaces_alone_are_banned_as_they_are():
    assert spelled(["  "], tiny_tokenizer()) == ["   "]


def test_a_word_without_tokens_or_with_one_that_the_model_lacks_is_named():
    silent, tokenizer = characters(normalizers.Replace("x", "")), tiny_tokenizer()
    job = JobSpec(input="i", output="o", model="m", bad_words=("ab", "x"))
    with pytest.raises(InvalidJob, match="--bad-words: 'x' has no tokens"):
        check_job_tokens(job, silent, vocab_size=98)
    with pytest.raises(RowFailed, match="params: bad_words: 'x' has no tokens"):
        check_row_tokens(RowParams(bad_words=("x",)), silent, vocab_size=98)
    last = max(tokenizer("ab x", add_special_tokens=False).input_ids)
    check_job_tokens(job, tokenizer, vocab_size=last + 1)
    with pytest.raises(InvalidJob, match=f"--bad-words: there is no token {last}; the model has {last}, from 0"):
        check_job_tokens(job, tokenizer, vocab_size=last)


def test_a_jobs_words_are_tokenised_once(monkeypatch):
    tokenised = []
    tokenize = token_options._token_ids
    monkeypatch.setattr(token_options, "_token_ids", lambda text, own: tokenised.append(text) or tokenize(text, own))
    tokenizer = tiny_tokenizer()
    for _ in range(3):
        bad_word_token_ids(("ab", "cd"), tokenizer)
    assert tokenised == ["ab", " ab", "cd", " cd"]
