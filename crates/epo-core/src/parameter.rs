//! Configuration parameters. The doc comment at the declaration is also the help text.

/// One parameter of a configuration: its key and its documentation.
///
/// The macro [`parameters!`](crate::parameters) generates the parameters of a table from its doc comments. Therefore
/// `epo algos NAME`, `--print-config` and rustdoc show the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Key of the parameter within its table, such as `clip`.
    pub key: &'static str,
    /// Documentation as written in the source. Each line starts with a space.
    doc: &'static str,
}

impl Parameter {
    /// Creates a parameter. The macro [`parameters!`](crate::parameters) calls this function.
    pub const fn new(key: &'static str, doc: &'static str) -> Self {
        Self { key, doc }
    }

    /// Returns the documentation as one paragraph without line breaks.
    pub fn text(&self) -> String {
        self.doc.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Declares a table of parameters: a struct in which every field has a doc comment and a default value.
///
/// The macro generates the struct, its `Default`, and `parameters()`, the list of keys with their documentation. It
/// also appends the default value to the documentation of each field, so the documented default is always correct.
/// After a semicolon, `..name: Type` embeds another table of parameters. In a configuration file, its keys appear at
/// the same level as those of the outer table.
///
/// ```
/// epo_core::parameters! {
///     /// Parameters of a walk.
///     #[derive(Debug)]
///     pub struct Walk {
///         /// Length of a step, in metres. Longer steps are faster and less stable.
///         pub step: f64 = 0.5,
///     }
/// }
/// assert_eq!(Walk::default().step, 0.5);
/// let parameter = Walk::parameters()[0];
/// assert_eq!((parameter.key, parameter.text().starts_with("Length of a step")), ("step", true));
/// ```
#[macro_export]
macro_rules! parameters {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde($($serde:tt)*)])?
                pub $field:ident: $type:ty = $default:expr
            ),* $(,)?
            $(; $(
                $(#[doc = $table_doc:literal])*
                ..$table:ident: $table_type:ty
            ),* $(,)?)?
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $(
                $(#[doc = $doc])*
                #[doc = ""]
                #[doc = concat!("Default: `", stringify!($default), "`.")]
                $(#[serde($($serde)*)])?
                pub $field: $type,
            )*
            $($(
                $(#[doc = $table_doc])*
                #[serde(flatten)]
                pub $table: $table_type,
            )*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($($table: Default::default(),)*)? }
            }
        }

        impl $name {
            /// Returns all parameters of this table with their documentation, in the order of declaration.
            pub fn parameters() -> Vec<$crate::Parameter> {
                let own = [$($crate::Parameter::new(stringify!($field), concat!($($doc, "\n"),*)),)*];
                #[allow(unused_mut)]
                let mut all = own.to_vec();
                $($(all.extend(<$table_type>::parameters());)*)?
                all
            }
        }
    };
}
