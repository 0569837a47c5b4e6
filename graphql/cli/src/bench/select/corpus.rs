use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use planner::embed::{EmbedError, Embedder};
use serde_json::{Value, json};

pub(crate) const EXAMPLES_PER_TOOL: usize = 6;
const DIMENSIONS: usize = 384;
const VOCABULARY_WORDS: u64 = 4_096;
const DESCRIPTION_WORDS: usize = 14;
const VERBS: [&str; 16] = [
    "create",
    "get",
    "update",
    "delete",
    "list",
    "search",
    "send",
    "share",
    "move",
    "copy",
    "check",
    "book",
    "cancel",
    "convert",
    "translate",
    "schedule",
];

pub(crate) struct Corpus {
    topics: u64,
}

impl Corpus {
    /// Makes a corpus of `tools` tools. Each tool is a pair of a verb and a topic, so the number of
    /// topics follows from the number of verbs.
    pub(crate) fn new(tools: usize) -> Self {
        Self { topics: (tools as u64).div_ceil(VERBS.len() as u64).max(1) }
    }

    pub(crate) fn make_tools(&self, count: usize) -> Vec<Value> {
        (0..count as u64).map(|n| self.make_tool(n)).collect()
    }

    fn make_tool(&self, n: u64) -> Value {
        let (verb, topic) = (VERBS[index_below(n, VERBS.len())], self.make_topic(n));
        let mut dice = SeededRandom::new(n);
        let about: Vec<String> = (0..DESCRIPTION_WORDS).map(|_| dice.draw_word()).collect();
        let examples: Vec<String> = (0..EXAMPLES_PER_TOOL)
            .map(|_| format!("{verb} the {topic} {} {}", dice.draw_word(), dice.draw_word()))
            .collect();
        json!({
            "name": format!("{verb}_{topic}_{n}"),
            "description": format!("{verb} {topic}: {}", about.join(" ")),
            "examples": examples,
            "parameters": { "type": "object", "properties": { "topic": {}, (about[0].as_str()): {} } },
            "effect": "read",
            "run": { "command": ["true"] },
        })
    }

    fn make_topic(&self, n: u64) -> String {
        name_of_number(VOCABULARY_WORDS + n / VERBS.len() as u64 % self.topics)
    }

    pub(crate) fn make_queries(&self, count: usize, parts: usize) -> Vec<String> {
        (0..count).map(|n| self.make_query(n, parts)).collect()
    }

    pub(crate) fn make_query(&self, n: usize, parts: usize) -> String {
        let mut dice = SeededRandom::new(!(n as u64));
        let mut part = || {
            let verb = VERBS[index_below(dice.next(), VERBS.len())];
            let topic = self.make_topic(dice.next() % (self.topics * VERBS.len() as u64));
            format!("{verb} the {topic} with {} and {}", dice.draw_word(), dice.draw_word())
        };
        let parts: Vec<String> = (0..parts).map(|_| part()).collect();
        parts.join(". Then ")
    }
}

/// An embedder without a model. Texts that share words are close.
#[derive(Debug, Default)]
pub(crate) struct WordEmbedder(AtomicUsize);

impl WordEmbedder {
    pub(crate) fn count_embedded_texts(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Embedder for WordEmbedder {
    fn model(&self) -> &'static str {
        "bench-words"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.0.fetch_add(texts.len(), Ordering::Relaxed);
        Ok(texts.iter().map(|text| make_vector(text)).collect())
    }
}

fn make_vector(text: &str) -> Vec<f32> {
    let mut sums = vec![0.0_f32; DIMENSIONS];
    for word in
        text.split(|letter: char| !letter.is_alphanumeric()).filter(|letter| !letter.is_empty())
    {
        let seed = word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut dice = SeededRandom(seed);
        for sums in sums.as_chunks_mut::<8>().0 {
            // A random number has eight bytes, and each byte is the value of one dimension.
            for (sum, byte) in sums.iter_mut().zip(dice.next().to_le_bytes()) {
                *sum += f32::from(byte.cast_signed()) + 0.5;
            }
        }
    }
    let length =
        sums.iter().map(|number| number * number).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    sums.into_iter().map(|number| number / length).collect()
}

struct SeededRandom(u64);

impl SeededRandom {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a word. Earlier words of the vocabulary are more frequent, as in natural language.
    fn draw_word(&mut self) -> String {
        let drawn = self.next();
        let room = VOCABULARY_WORDS >> (drawn % 12);
        name_of_number((drawn >> 8) % room.max(1))
    }
}

/// Makes a word of syllables from a number. Different numbers give different words.
fn name_of_number(mut number: u64) -> String {
    const SYLLABLES: [&str; 16] = [
        "ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu",
        "xa",
    ];
    let mut word = "q".to_owned();
    loop {
        word.push_str(SYLLABLES[index_below(number, SYLLABLES.len())]);
        number /= SYLLABLES.len() as u64;
        if number == 0 {
            return word;
        }
    }
}

fn index_below(number: u64, of: usize) -> usize {
    usize::try_from(number % of as u64).unwrap_or(0)
}
