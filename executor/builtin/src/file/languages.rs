//! Patterns of definitions in common languages. A pattern sees one line at a time.

use std::path::Path;

#[derive(Debug)]
pub(super) struct Language {
    pub(super) extensions: &'static [&'static str],
    /// Regular expressions for one line, in which `NAME` is replaced by the searched name.
    line_patterns: &'static [&'static str],
}

/// First words of lines that match a definition in C syntax but are statements.
const STATEMENT_KEYWORDS: [&str; 21] = [
    "return",
    "new",
    "throw",
    "else",
    "await",
    "yield",
    "case",
    "delete",
    "goto",
    "assert",
    "print",
    "echo",
    "raise",
    "not",
    "if",
    "while",
    "for",
    "switch",
    "import",
    "from",
    "co_return",
];

const LANGUAGES: [Language; 19] = [
    Language {
        extensions: &["rs"],
        line_patterns: &[
            r#"^\s*(?:pub(?:\s*\([^)]*\))?\s+)?(?:(?:default|const|async|unsafe|safe|auto|extern(?:\s+"[^"]*")?)\s+)*(?:fn|struct|enum|union|trait|type|mod|const|static(?:\s+mut)?)\s+(?:r#)?NAME"#,
            r"^\s*macro_rules!\s*NAME",
        ],
    },
    Language {
        extensions: &["py", "pyi", "pyx"],
        line_patterns: &[
            r"^\s*(?:async\s+)?(?:def|class|cdef|cpdef)\s+NAME",
            r"^(?:type\s+)?NAME\s*(?::[^=]+)?=(?:[^=]|$)",
        ],
    },
    Language {
        extensions: &["js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte"],
        line_patterns: &[
            r"^\s*(?:(?:export|default|declare|async|abstract|const)\s+)*(?:function\s*\*?|class|interface|type|enum|namespace|module)\s+NAME",
            r"^\s*(?:(?:export|declare)\s+)*(?:const|let|var)\s+NAME",
            r"^\s*(?:(?:public|private|protected|static|async|readonly|abstract|override|get|set)\s+)*[*#]?\s*NAME\s*(?:<[^(]*>)?\([^;]*\{\s*$",
            r"^\s*(?:(?:public|private|protected|static|readonly|override)\s+)*#?NAME\s*[:=]\s*(?:async\s+)?(?:function|\([^)]*\)\s*(?::[^=]+)?=>|\w+\s*=>)",
        ],
    },
    Language {
        extensions: &["go"],
        line_patterns: &[
            r"^func\s+(?:\([^)]*\)\s*)?NAME",
            r"^\s*(?:type|var|const)\s+NAME",
            r"^\t+NAME\s+(?:struct|interface|func)",
        ],
    },
    Language {
        extensions: &["java", "cs", "dart", "groovy"],
        line_patterns: &[
            r"^\s*(?:[@\[][^\s]*\s+|\w+\s+)*(?:class|interface|enum|record|struct|mixin|extension|namespace|delegate|@interface)\s+NAME",
            r"^\s*(?:@\w+\s+)*(?:[A-Za-z_][\w<>,.?\[\]]*\s+)+NAME\s*(?:<[^(]*>)?\(",
            r"^\s*(?:(?:public|private|protected|internal|static|final|const|readonly)\s+)+[\w<>,.?\[\]]+\s+NAME\s*(?:[=;{]|$)",
        ],
    },
    Language {
        extensions: &["c", "h", "cc", "cpp", "cxx", "hh", "hpp", "hxx", "m", "mm", "cu"],
        line_patterns: &[
            r"^\s*#\s*define\s+NAME",
            r"^\s*(?:typedef\s+)?(?:template\s*<.*>\s*)?(?:struct|union|enum(?:\s+class|\s+struct)?|class|namespace|concept|@interface|@implementation|@protocol)\s+(?:\w+\s+)*?NAME\s*(?:final\s*)?(?:[:{=<]|$)",
            r"^\s*typedef\s.*NAME\s*;",
            r"^\s*\}\s*NAME\s*;",
            r"^\s*using\s+NAME\s*=",
            r"^\s*(?:[A-Za-z_][\w:<>,\[\]]*[\s*&]+)+(?:[\w<>]+::)*~?NAME\s*\([^;{]*(?:\{.*)?$",
            r"^(?:[\w<>]+::)+~?NAME\s*\([^;{]*(?:\{.*)?$",
            r"^\s*(?:(?:static|extern|inline|constexpr|const)\s+)+[\w:<>*&\s]*?NAME\s*(?:\[[^\]]*\]\s*)?=",
        ],
    },
    Language {
        extensions: &["rb", "rake"],
        line_patterns: &[
            r"^\s*(?:\w+\s+)?def\s+(?:\w+\.)?NAME",
            r"^\s*(?:class|module)\s+(?:\w+::)*NAME",
            r"^\s*(?:attr_\w+|define_method|alias_method|scope)[\s(]+:NAME",
        ],
    },
    Language {
        extensions: &["kt", "kts", "scala", "sc"],
        line_patterns: &[
            r"^\s*(?:@\w+\s+|\w+(?:\[\w+\])?\s+)*(?:class|interface|object|trait|typealias|type|enum|given)\s+NAME",
            r"^\s*(?:\w+\s+)*(?:fun|def)\s+(?:<[^>]*>\s*)?(?:[\w<>?]+\.)?NAME",
            r"^\s*(?:\w+\s+)*va[lr]\s+NAME",
        ],
    },
    Language {
        extensions: &["swift"],
        line_patterns: &[
            r"^\s*(?:@\w+\s+|\w+(?:\(\w+\))?\s+)*(?:class|struct|enum|protocol|extension|actor|typealias|func|var|let|macro)\s+NAME",
        ],
    },
    Language {
        extensions: &["php"],
        line_patterns: &[
            r"^\s*(?:\w+\s+)*(?:function\s*&?|class|interface|trait|enum|const)\s+NAME",
            r"^\s*define\(\s*['\x22]NAME",
        ],
    },
    Language {
        extensions: &["sh", "bash", "zsh", "ksh"],
        line_patterns: &[
            r"^\s*NAME\s*\(\)",
            r"^\s*function\s+NAME",
            r"^\s*(?:export\s+|readonly\s+|declare\s+(?:-\w+\s+)*)?NAME=",
        ],
    },
    Language {
        extensions: &["lua"],
        line_patterns: &[
            r"^\s*(?:local\s+)?function\s+(?:[\w.]+[.:])?NAME",
            r"^\s*(?:local\s+)?(?:[\w.]+\.)?NAME\s*=\s*function",
            r"^local\s+NAME",
        ],
    },
    Language {
        extensions: &["ex", "exs"],
        line_patterns: &[
            r"^\s*(?:def|defp|defmacro|defmacrop|defguard|defguardp|defdelegate)\s+NAME",
            r"^\s*(?:defmodule|defprotocol|defimpl)\s+(?:\w+\.)*NAME",
        ],
    },
    Language {
        extensions: &["zig"],
        line_patterns: &[
            r"^\s*(?:(?:pub|export|extern|inline|threadlocal|comptime)\s+)*(?:fn|const|var)\s+NAME",
        ],
    },
    Language {
        extensions: &["hs", "ml", "mli", "fs", "elm"],
        line_patterns: &[
            r"^\s*NAME\s*::",
            r"^\s*(?:data|newtype|type|class|module|exception)\s+(?:\w+\.)*NAME",
            r"^\s*(?:let|val|and|external)\s+(?:rec\s+|inline\s+|mutable\s+)*NAME",
            r"^NAME\s*:",
        ],
    },
    Language {
        extensions: &["pl", "pm", "r", "jl"],
        line_patterns: &[
            r"^\s*(?:sub|function|macro|(?:mutable\s+)?struct|module|package|abstract\s+type)\s+(?:[\w.:]+[.:])?NAME",
            r"^\s*NAME\s*(?:<-|=)\s*function",
            r"^NAME\([^=]*\)\s*=[^=]",
        ],
    },
    Language {
        extensions: &["sql"],
        line_patterns: &[
            r"(?i)^\s*create\s+(?:or\s+replace\s+)?(?:\w+\s+){1,3}?(?:if\s+not\s+exists\s+)?(?:\w+\.)?[\x22`\[]?NAME",
        ],
    },
    Language {
        extensions: &["proto", "thrift"],
        line_patterns: &[
            r"^\s*(?:message|enum|service|rpc|struct|union|exception|typedef\s.*)\s*NAME",
        ],
    },
    Language {
        extensions: &["graphql", "gql"],
        line_patterns: &[
            r"^\s*(?:extend\s+)?(?:type|input|enum|interface|union|scalar|fragment|query|mutation|subscription)\s+NAME",
            r"^\s*directive\s+@NAME",
        ],
    },
];

pub(super) fn find_language(path: &Path) -> Option<&'static Language> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    LANGUAGES.iter().find(|language| language.extensions.contains(&extension.as_str()))
}

/// Returns whether a line is a statement that only looks like a definition.
pub(super) fn is_statement(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    let word = line.split(|char: char| !char.is_alphanumeric() && char != '_').next();
    word.is_some_and(|word| word != name && STATEMENT_KEYWORDS.contains(&word))
}

impl Language {
    pub(super) fn definition_pattern(&self, name: &str) -> String {
        let end = match name.chars().next_back() {
            Some(last) if last.is_alphanumeric() || last == '_' => r"\b",
            _ => "",
        };
        let name = format!("{}{end}", escape_pattern(name));
        let line_patterns = self.line_patterns.iter().map(|pattern| pattern.replace("NAME", &name));
        line_patterns.map(|pattern| format!("(?:{pattern})")).collect::<Vec<_>>().join("|")
    }
}

fn escape_pattern(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_ascii_punctuation() && char != '_' {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}
