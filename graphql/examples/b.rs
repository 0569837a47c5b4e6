use clap::Parser;
#[derive(Parser)]
struct A {
    #[command(flatten)]
    a: graphql::cli::bench::BenchArgs,
    #[arg(long)]
    store: Option<String>,
}
fn main() {
    let a = A::parse();
    let rt = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let url = a.store.clone().unwrap_or_else(|| "sqlite:/work/tmp/bench.db".into());
    println!(
        "{}",
        serde_json::to_string_pretty(&rt.block_on(graphql::cli::bench::run(&a.a, &url)).unwrap())
            .unwrap()
    );
}
