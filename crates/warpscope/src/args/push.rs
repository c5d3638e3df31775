//! The options that push a recording to a receiver of continuous profiles.

use std::path::PathBuf;

use clap::Args;

use super::values;

/// Where to push a recording, and how.
#[derive(Args, Clone, Debug, Default)]
pub struct Push {
    /// Push profiles to otlp=URL or pyroscope=URL; may be repeated.
    // Not parsed by clap, which would print a password in a wrong URL.
    #[arg(long = "push", value_name = "RECEIVER", help_heading = "Push")]
    pub receivers: Vec<String>,
    /// With --push, trust only the certificate authorities in FILE (PEM).
    #[arg(long, value_name = "FILE", requires = "receivers", help_heading = "Push")]
    pub push_ca: Option<PathBuf>,
    /// With --push, send the bearer token in FILE.
    #[arg(long, value_name = "FILE", requires = "receivers", help_heading = "Push")]
    pub push_token_file: Option<PathBuf>,
    /// With --push, send the USER:PASSWORD in FILE.
    #[arg(
        long,
        value_name = "FILE",
        requires = "receivers",
        conflicts_with = "push_token_file",
        help_heading = "Push"
    )]
    pub push_basic_file: Option<PathBuf>,
    /// With --push, send the headers in FILE (Name: value).
    #[arg(long, value_name = "FILE", requires = "receivers", help_heading = "Push")]
    pub push_header_file: Option<PathBuf>,
    /// With --push, send the name of a tenant (X-Scope-OrgID).
    #[arg(long, value_name = "TENANT", requires = "receivers", help_heading = "Push")]
    pub push_tenant: Option<String>,
    /// With --push, try for at most TIME.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = values::seconds, requires = "receivers", help_heading = "Push")]
    pub push_timeout: f64,
}
