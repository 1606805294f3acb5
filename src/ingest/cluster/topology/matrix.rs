//! The matrix of `nvidia-smi topo -m`: which link joins each pair of GPUs, and the network ports beside them.
//!
//! Lines are split by hand, for a row may end in empty affinity cells; code cells hold no blanks,
//! whether they came with tabs or were pasted with runs of blanks.

use crate::ingest::cluster::error::{ClusterError, cut};

/// Limits of what is read.
const MAX_LINES: usize = 2_000;
const MAX_COLUMNS: usize = 512;

/// How two devices are joined, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The device itself.
    Itself,
    /// Bonded NVLinks, by number.
    NvLink(u8),
    /// At most one PCIe bridge.
    Pix,
    /// Several PCIe bridges.
    Pxb,
    /// A host bridge.
    Phb,
    /// Host bridges of one NUMA node.
    Node,
    /// Across sockets.
    Sys,
}

/// What the matrix says of the GPUs it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// GPU by GPU; `None` where the rows of both are missing.
    pub pairs: Vec<Vec<Option<Code>>>,
    /// Names of the network columns, in order.
    pub nics: Vec<String>,
    /// For each GPU whose row is there: its code to each network port.
    pub nic_codes: Vec<Vec<Code>>,
    /// The last cell of each GPU row where the "GPU NUMA ID" column has a number: memory on a Grace node.
    pub gpu_numa: Vec<Option<u64>>,
    /// NUMA nodes of the hosts' CPUs, distinct, where given.
    pub numa_nodes: Vec<String>,
    /// Rows of GPUs that are there.
    pub rows_present: usize,
    /// True when the header or rows are missing.
    pub truncated: bool,
    /// True when the header is missing.
    pub headerless: bool,
}

impl Matrix {
    /// GPUs of the node.
    #[must_use]
    pub const fn gpus(&self) -> usize {
        self.pairs.len()
    }

    /// The code between two GPUs, where either row is there.
    #[must_use]
    pub fn code(&self, a: usize, b: usize) -> Option<Code> {
        *self.pairs.get(a)?.get(b)?
    }

    /// Every code between two different GPUs.
    pub fn codes(&self) -> impl Iterator<Item = Code> {
        self.pairs.iter().flatten().flatten().copied().filter(|c| *c != Code::Itself)
    }
}

struct Cell<'t> {
    text: &'t str,
    column: usize,
}

struct Row<'t> {
    line: usize,
    name: &'t str,
    cells: Vec<Cell<'t>>,
}

/// True when the text looks like a topology matrix.
#[must_use]
pub fn looks_like_matrix(text: &str) -> bool {
    without_escapes(text).lines().take(200).any(|line| {
        let mut cells = line.split_whitespace();
        let named = cells.next().is_some_and(|c| device(c, "GPU").is_some());
        named && cells.next().is_some_and(|c| code_of(c).is_some())
    })
}

/// Read a matrix.
///
/// # Errors
/// `unreadable_cluster` with line and column of the first damaged cell, or `no_gpus`.
pub fn read_matrix(text: &str) -> Result<Matrix, ClusterError> {
    let text = without_escapes(text);
    let mut header: Option<Vec<&str>> = None;
    let mut gpu_rows: Vec<Row<'_>> = Vec::new();
    let mut nic_rows = 0;
    for (i, line) in text.lines().enumerate().take(MAX_LINES) {
        let cells = cells_of(line);
        let Some(first) = cells.first() else { continue };
        if device(first.text, "GPU").is_none() {
            nic_rows +=
                usize::from(is_device(first.text) && cells.get(1).is_some_and(|c| code_of(c.text).is_some()));
            continue;
        }
        let next = cells.get(1).map(|c| c.text);
        let is_header = next.is_none_or(|t| is_device(t) || t == "CPU");
        if is_header && header.is_none() && gpu_rows.is_empty() {
            header = Some(cells.iter().map(|c| c.text).take_while(|t| is_device(t)).collect());
            continue;
        }
        let name = first.text;
        gpu_rows.push(Row { line: i + 1, name, cells: cells.into_iter().skip(1).collect() });
    }
    if gpu_rows.is_empty() {
        return Err(ClusterError::no_gpus("the matrix has no row that begins with GPU0"));
    }
    let mut matrix = assemble(header, &gpu_rows)?;
    matrix.truncated |= nic_rows < matrix.nics.len();
    Ok(matrix)
}

fn assemble(header: Option<Vec<&str>>, rows: &[Row<'_>]) -> Result<Matrix, ClusterError> {
    let gpus = match &header {
        Some(names) => names.iter().filter(|n| device(n, "GPU").is_some()).count(),
        None => gpus_without_header(rows),
    };
    if gpus == 0 || gpus > MAX_COLUMNS {
        return Err(ClusterError::unreadable(format!("the header names {gpus} GPUs")).at(1, 1));
    }
    let nics: Vec<String> = match &header {
        Some(names) => names.iter().skip(gpus).map(|n| (*n).to_owned()).collect(),
        None => Vec::new(),
    };
    let mut pairs = vec![vec![None; gpus]; gpus];
    let mut matrix = Matrix {
        pairs: Vec::new(),
        nic_codes: Vec::new(),
        gpu_numa: vec![None; gpus],
        numa_nodes: Vec::new(),
        rows_present: 0,
        truncated: header.is_none(),
        headerless: header.is_none(),
        nics,
    };
    let mut seen = vec![false; gpus];
    for (nth, row) in rows.iter().enumerate() {
        let last = nth + 1 == rows.len();
        let index = device(row.name, "GPU").filter(|i| *i < gpus).ok_or_else(|| {
            ClusterError::unreadable(format!(
                "\"{}\" is not among the {gpus} GPUs of the header",
                cut(row.name)
            ))
            .at(row.line, 1)
        })?;
        if seen.get(index).copied().unwrap_or(true) {
            return Err(
                ClusterError::unreadable(format!("a second row of {}", cut(row.name))).at(row.line, 1)
            );
        }
        if let Some(flag) = seen.get_mut(index) {
            *flag = true;
        }
        let codes = codes_of(row, index, gpus, last, &mut matrix.truncated)?;
        for (other, code) in codes.iter().enumerate() {
            set_pair(&mut pairs, index, other, *code, row)?;
        }
        read_rest(row, gpus, index, &mut matrix);
    }
    matrix.rows_present = seen.iter().filter(|s| **s).count();
    matrix.truncated |= matrix.rows_present < gpus;
    matrix.pairs = pairs;
    Ok(matrix)
}

/// The GPU codes of a row. A last row that breaks off is a cut text, elsewhere it is damage.
fn codes_of(
    row: &Row<'_>,
    index: usize,
    gpus: usize,
    last: bool,
    truncated: &mut bool,
) -> Result<Vec<Code>, ClusterError> {
    let mut codes = Vec::with_capacity(gpus);
    for other in 0..gpus {
        let Some(cell) = row.cells.get(other) else {
            if last && !codes.is_empty() {
                *truncated = true;
                return Ok(codes);
            }
            let end = row.cells.last().map_or(1, |c| c.column + c.text.len());
            let message = format!("the row of {} ends after {} of {gpus} GPUs", cut(row.name), codes.len());
            return Err(ClusterError::unreadable(message).at(row.line, end));
        };
        let code = code_of(cell.text).ok_or_else(|| {
            let message =
                format!("\"{}\" is no link code (X, NV#, PIX, PXB, PHB, NODE, SYS)", cut(cell.text));
            ClusterError::unreadable(message).at(row.line, cell.column)
        })?;
        if (code == Code::Itself) != (other == index) {
            let message = format!("{} stands between {} and GPU{other}", cell.text, cut(row.name));
            return Err(ClusterError::unreadable(message).at(row.line, cell.column));
        }
        codes.push(code);
    }
    Ok(codes)
}

fn set_pair(
    pairs: &mut [Vec<Option<Code>>],
    a: usize,
    b: usize,
    code: Code,
    row: &Row<'_>,
) -> Result<(), ClusterError> {
    for (x, y) in [(a, b), (b, a)] {
        let Some(cell) = pairs.get_mut(x).and_then(|r| r.get_mut(y)) else { continue };
        if cell.is_some_and(|before| before != code) {
            let column = row.cells.get(b).map_or(1, |c| c.column);
            let message = format!("the link of GPU{b} and GPU{a} is given twice and differs");
            return Err(ClusterError::unreadable(message).at(row.line, column));
        }
        *cell = Some(code);
    }
    Ok(())
}

/// Network codes and affinities behind the GPU codes.
fn read_rest(row: &Row<'_>, gpus: usize, index: usize, matrix: &mut Matrix) {
    let rest: Vec<&Cell<'_>> = row.cells.iter().skip(gpus).collect();
    let codes: Vec<Code> = rest.iter().map_while(|c| code_of(c.text)).collect();
    let affinities: Vec<&str> = rest.iter().skip(codes.len()).map(|c| c.text).collect();
    matrix.nic_codes.push(codes);
    // CPU list, NUMA list, GPU NUMA id: the last is a number only where the GPU's memory is a NUMA node.
    if let Some(numa) = affinities.get(1).filter(|t| t.chars().next().is_some_and(|c| c.is_ascii_digit()))
        && !matrix.numa_nodes.iter().any(|n| n == numa)
    {
        matrix.numa_nodes.push((*numa).to_owned());
    }
    if let Some(slot) = matrix.gpu_numa.get_mut(index) {
        *slot = affinities.get(2).and_then(|t| t.parse().ok());
    }
}

/// Without a header: NVLink joins only GPUs, and every row is one.
fn gpus_without_header(rows: &[Row<'_>]) -> usize {
    let by_rows = rows.iter().filter_map(|r| device(r.name, "GPU")).max().map_or(0, |i| i + 1);
    let by_links = rows
        .iter()
        .flat_map(|r| r.cells.iter().enumerate())
        .filter(|(_, c)| matches!(code_of(c.text), Some(Code::NvLink(_))))
        .map(|(i, _)| i + 1)
        .max()
        .unwrap_or(0);
    by_rows.max(by_links)
}

fn cells_of(line: &str) -> Vec<Cell<'_>> {
    let start = line.as_ptr() as usize;
    line.split_whitespace()
        .take(MAX_COLUMNS)
        .map(|text| Cell { text, column: (text.as_ptr() as usize).saturating_sub(start) + 1 })
        .collect()
}

/// The number of a device such as GPU7.
fn device(text: &str, kind: &str) -> Option<usize> {
    text.strip_prefix(kind)?.parse().ok()
}

fn is_device(text: &str) -> bool {
    device(text, "GPU").is_some() || device(text, "NIC").is_some() || text.strip_prefix("mlx5_").is_some()
}

fn code_of(text: &str) -> Option<Code> {
    Some(match text {
        "X" => Code::Itself,
        "PIX" => Code::Pix,
        "PXB" => Code::Pxb,
        "PHB" => Code::Phb,
        "NODE" | "SOC" => Code::Node,
        "SYS" | "QPI" => Code::Sys,
        _ => Code::NvLink(text.strip_prefix("NV")?.parse().ok().filter(|n| *n > 0)?),
    })
}

/// The text without terminal escapes, which some drivers print around the header.
fn without_escapes(text: &str) -> String {
    if !text.contains('\u{1b}') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        out.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).map_or(after.len(), |i| i + 1);
        rest = after.get(end..).unwrap_or("");
    }
    out.push_str(rest);
    out
}
