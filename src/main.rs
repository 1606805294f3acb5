//! The binary: reads the command line and hands over.

fn main() -> std::process::ExitCode {
    shardwise::cli::main()
}
