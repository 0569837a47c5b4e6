//! Tests of the lines that `find_definition` recognises as definitions.

use expect_test::expect;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    file::{
        languages,
        search::{self, SeenLine},
    },
    root::StopSignal,
    tests::project::Project,
};

#[tokio::test]
async fn definitions_are_found_by_name() {
    let project = Project::with_files(&[
        (
            "a.rs",
            "pub(crate) async fn load() {}\n// fn load()\nlet x = load();\nimpl load for T {}\nfn load_all() {}\n",
        ),
        ("a.py", "class Loader:\n    async def load(self): pass\nload = 1\nx = load()\n"),
        (
            "a.ts",
            "export default async function load<T>(x: T) {\n  return load(x)\n}\nconst load = () => 1\nif (load(x)) {\n",
        ),
        ("notes.md", "fn load()\n"),
        (".hidden.rs", "fn load() {}\n"),
    ]);
    let find = async |args, expected| project.check("find_definition", args, expected).await;
    find(
        json!({ "name": "load" }),
        expect![[r"
            Found 5 definition(s) of 'load':
            a.py:2: async def load(self): pass
            a.py:3: load = 1
            a.rs:1: pub(crate) async fn load() {}
            a.ts:1: export default async function load<T>(x: T) {
            a.ts:4: const load = () => 1"]],
    )
    .await;
    find(
        json!({ "name": "Loader.load", "path": "a.py" }),
        expect![[r"
            Found 2 definition(s) of 'load':
            a.py:2: async def load(self): pass
            a.py:3: load = 1"]],
    )
    .await;
    find(
        json!({ "name": "Loader.load(", "path": "a.py" }),
        expect![[r"
            Found 2 definition(s) of 'load':
            a.py:2: async def load(self): pass
            a.py:3: load = 1"]],
    )
    .await;
    find(
        json!({ "name": "load(self" }),
        expect!["tool.failed: Invalid name 'load(self': give the name of one definition"],
    )
    .await;
    find(json!({ "name": "lo.d" }), expect!["No definitions found for: d"]).await;
    find(
        json!({ "name": "" }),
        expect!["tool.failed: Invalid name '': give the name of one definition"],
    )
    .await;
    find(
        json!({ "name": "a b" }),
        expect!["tool.failed: Invalid name 'a b': give the name of one definition"],
    )
    .await;
    find(json!({ "name": "load", "path": "none" }), expect!["tool.failed: Path not found: none"])
        .await;
}

/// Lines of source files. Lines with `+` define `thing`, lines with `-` do not.
const DEFINITIONS: &str = r#"
rs + fn thing() {
rs +     pub const unsafe extern "C" fn thing<T>(x: T) -> T {
rs + pub struct thing;
rs + pub(in crate::a) enum thing {
rs + static mut thing: u8 = 1;
rs + macro_rules! thing {
rs + pub trait thing: Send {
rs + mod thing;
rs - use thing::other;
rs - fn something() {}
rs - self.thing();
py + def thing(
py + class thing(Base):
py + thing: int = 4
py -     thing = 4
py - if thing == 4:
js + function* thing() {
js + export class thing extends Other {
js +   async thing(a, b) {
js +   thing: function () {
js +   thing = async (x) => {
js -   thing(a, b);
js -   if (thing) {
js -   return thing(function () {
ts + export abstract class thing<T> {
ts + declare const thing: number
ts + type thing = string
ts +   private static thing<T>(x: T): void {
go + func (s *Server) thing(ctx Context) error {
go + func thing[T any](x T) {
go + type thing struct {
go + const thing = 4
go -     thing(x)
java + public final class thing extends Other {
java +     private static List<String> thing(int x) {
java +     public thing(int x) {
java +     static final int thing = 4;
java -         return thing(4);
java -         new thing(4);
java -         thing(4);
cs + internal sealed record thing(int X);
cs +     public async Task<int> thing<T>(T x)
c + static int thing(void)
c + struct thing *thing(int x) { return x; }
c + #define thing(x) (x)
c + struct thing {
c + typedef unsigned int thing;
c + } thing;
c - int y = thing(x);
c -     thing(x);
c -     return thing(x,
cpp + void Other::thing() const {
cpp + template <typename T> class thing {
cpp + enum class thing : int {
cpp + std::map<int, int> thing(int x) {
cpp + using thing = int;
cpp + constexpr int thing = 4;
rb + def self.thing(x)
rb +   private def thing
rb + class Other::thing < Base
rb - thing(x)
kt + override suspend fun <T> thing(x: T) {
kt + data class thing(val x: Int)
kt + val thing = 4
scala + implicit def thing(x: Int) = 4
swift + public func thing(x: Int) {
swift + @objc private final class thing {
php + public static function thing($x) {
sh + thing() {
sh + function thing {
sh - thing arg
lua + function M.thing(x)
lua + local thing = function(x)
ex + defp thing(x) do
zig + pub fn thing(x: u8) void {
hs + thing :: Int -> Int
ml + let rec thing x =
pl + sub thing {
r + thing <- function(x) {
sql + CREATE OR REPLACE FUNCTION public.thing(x int)
sql + create table if not exists thing (
proto + message thing {
graphql + type thing implements Node {
"#;

#[test]
fn definitions_are_found_in_every_supported_language() {
    for line in DEFINITIONS.trim().lines() {
        let (extension, rest) = line.split_once(' ').unwrap();
        let (sign, text) = rest.split_once(' ').unwrap();
        let language = languages::find_language(format!("x.{extension}").as_ref()).expect(line);
        let matcher = search::build_matcher(&language.definition_pattern("thing"), false).unwrap();
        let mut is_found = false;
        let stop = StopSignal::new(CancellationToken::new(), None);
        let on_line = |seen: SeenLine<'_>| {
            let SeenLine::Match { line, .. } = seen else { return true };
            is_found = !languages::is_statement(std::str::from_utf8(line).unwrap(), "thing");
            true
        };
        search::search_reader(
            text.as_bytes(),
            &stop,
            &mut search::build_searcher(0),
            &matcher,
            on_line,
        );
        assert_eq!(is_found, sign == "+", "{line}");
    }
}

#[test]
fn a_definition_name_may_have_letters_of_any_script() {
    let ruby = languages::find_language("x.rb".as_ref()).unwrap();
    let matcher = search::build_matcher(&ruby.definition_pattern("empty?"), false).unwrap();
    let mut lines = Vec::new();
    let stop = StopSignal::new(CancellationToken::new(), None);
    let text = "def empty?(x)\ndef empty\ndef empt(x)\n";
    let on_line = |seen: SeenLine<'_>| {
        lines.extend(match seen {
            SeenLine::Match { number, .. } => Some(number),
            _ => None,
        });
        true
    };
    search::search_reader(
        text.as_bytes(),
        &stop,
        &mut search::build_searcher(0),
        &matcher,
        on_line,
    );
    assert_eq!(lines, [1]);
}
