# Reads what a Bash call is to run, as JSON on standard input; exit code 2 blocks it.
#
# The command is taken apart as a shell does it: joined lines, quotes, comments, redirections, here
# documents, braces. Text within it that a shell may run is looked at in the same way: what `$(...)`
# holds, and, unless all that is run is known to run no text, each here document and each word with a
# blank or separator in it (`sh -c "git push"`).
LC_ALL=C awk '
function block(why) { print "blocked by policy: " why; exit 2 }

# All work is counted, since a hook that takes too long blocks nothing.
function works(steps) {
  work += steps
  if (work > 3000000) block("this command is too long or involved to be looked at: use a script")
}

# Notes a text that a shell may run.
function later(text, depth) {
  works(length(text))
  if (depth > 16) works(3000001)
  texts[++last] = text
  depths[last] = depth
}

# Notes a text that is run only if something in the whole command runs texts.
function maybe(text, depth) {
  works(length(text))
  if (depth > 16) works(3000001)
  maybes[++held] = text
  held_depths[held] = depth
}

function add(text) {
  has = 1
  part = part text
  if (length(part) > 500) { word = word part; part = "" }
}

# Reads the JSON string that begins at `at` into `text`, and gives where it ends.
function string(at,   c) {
  word = part = ""
  while (++at <= size && (c = substr(input, at, 1)) != "\"") {
    if (c == "\\") {
      c = substr(input, ++at, 1)
      if (c == "u") { c = character(substr(input, at + 1, 4)); at += 4 }
      else c = escaped(c)
    }
    add(c)
  }
  text = word part
  return at
}

function escaped(c) {
  if (c == "n") return "\n"
  if (c == "t") return "\t"
  return c ~ /[bfrv]/ ? " " : c
}

function character(digits,   i, value) {
  for (i = 1; i <= 4; i++) value = value * 16 + index("123456789abcdef", tolower(substr(digits, i, 1)))
  return letter(value)
}

function letter(value) { return value > 0 && value < 128 ? sprintf("%c", value) : "?" }

# Adds what the escape behind the backslash at `i` stands for, and gives where it ends.
function escape(s, i,   c, base, most, digit, value) {
  c = substr(s, ++i, 1)
  base = c ~ /[xuU]/ ? 16 : c ~ /[0-7]/ ? 8 : 0
  if (!base) { add(escaped(c)); return i }
  most = c == "x" ? 2 : c == "u" ? 4 : c == "U" ? 8 : 3
  if (base == 8) i--
  for (; most > 0 && (digit = index("0123456789abcdef", tolower(substr(s, i + 1, 1)))); most--) {
    if (digit > base || substr(s, i + 1, 1) == "") break
    value = value * base + digit - 1
    i++
  }
  add(letter(value))
  return i
}

# Where the substitution at `i` ends, or 0 if there is none.
function substitution(s, i,   c, e, len, level, inner) {
  len = length(s)
  if (substr(s, i, 1) == "`") {
    for (e = i + 1; e <= len && (c = substr(s, e, 1)) != "`"; e++) if (c == "\\") e++
    inner = substr(s, i + 1, e - i - 1)
    gsub(/\\`/, "`", inner)
  } else {
    if (substr(s, i + 1, 1) != "(") return 0
    level = 1
    for (e = i + 2; e <= len; e++) {
      c = substr(s, e, 1)
      if (c == "\\") e++
      else if (c == q) while (++e <= len && substr(s, e, 1) != q);
      else if (c == "\"") {
        while (++e <= len && (c = substr(s, e, 1)) != "\"") if (c == "\\") e++
      }
      else if (c == "(") level++
      else if (c == ")" && --level == 0) break
    }
    inner = substr(s, i + 2, e - i - 2)
  }
  works(e - i)
  if (e > len) return 0
  later(inner, depth + 1)
  add("$")
  return e
}

# Reads what double quotes hold from `i` on, and gives where it ends.
function double(s, i,   c, e, len) {
  len = length(s)
  has = 1
  while (++i <= len && (c = substr(s, i, 1)) != "\"") {
    if (c == "\\") {
      c = substr(s, ++i, 1)
      if (c != "\n") add(c ~ /[$`"\\]/ ? c : "\\" c)
    }
    else if (c ~ /[$`]/ && (e = substitution(s, i))) i = e
    else add(c)
  }
  return i
}

# Takes a here document that begins after `i`, and gives where it ends.
function body(s, i, number,   start, e, line) {
  start = i + 1
  while (i < length(s)) {
    e = index(substr(s, i + 1), "\n")
    if (!e) e = length(s) - i + 1
    line = substr(s, i + 1, e - 1)
    if (dashes[number]) sub(/^\t+/, "", line)
    if (line == ends[number]) {
      held_body(substr(s, start, i + 1 - start), number)
      return i + e
    }
    i += e
  }
  held_body(substr(s, start), number)
  return length(s)
}

# Notes what a here document holds; what is substituted in it is run in any case.
function held_body(text, number,   c, e, i, len) {
  maybe(text, depth + 1)
  if (quoted[number]) return
  len = length(text)
  for (i = 1; i <= len; i++) {
    c = substr(text, i, 1)
    if (c == "\\") i++
    else if (c ~ /[$`]/ && (e = substitution(text, i))) i = e
  }
  word = part = ""
  has = 0
}

function scan(s,   c, e, i, len, next_c) {
  len = length(s)
  word = part = ""
  has = bare = braced = count = target = document = documents = 0
  bare = 1
  for (i = 1; i <= len; i++) {
    c = substr(s, i, 1)
    next_c = substr(s, i + 1, 1)
    if (c == "\\") {
      i++
      if (next_c != "\n" && next_c != "") { bare = 0; add(next_c) }
    }
    else if (c == q) {
      e = index(substr(s, i + 1), q)
      if (!e) e = len - i + 1
      bare = 0
      add(substr(s, i + 1, e - 1))
      i += e
    }
    else if (c == "\"") { bare = 0; i = double(s, i) }
    else if (c == "$" && next_c == "\"") continue
    else if (c == "$" && next_c == q) {
      bare = 0
      has = 1
      for (i += 2; i <= len && (c = substr(s, i, 1)) != q; i++) {
        if (c == "\\") i = escape(s, i)
        else add(c)
      }
    }
    else if (c ~ /[$`<>]/ && (e = substitution(s, i))) i = e
    else if (c ~ /[<>]/ || (c == "&" && next_c == ">")) {
      # The number before it is part of it.
      if (has && bare && word part ~ /^([0-9]+|[{][a-zA-Z0-9_]+[}])$/) { word = part = ""; has = 0 }
      end_word()
      e = i
      while (substr(s, i + 1, 1) ~ /[<>&|]/) i++
      target = 1
      if (substr(s, e, i - e + 1) == "<<") {
        document = 1
        if (substr(s, i + 1, 1) == "-") { document = 2; i++ }
      }
    }
    else if (c ~ /[ \t\r]/) end_word()
    else if (c ~ /[;&|()`\n]/) {
      end_command()
      if (c == "\n") {
        for (e = 1; e <= documents; e++) i = body(s, i, e)
        documents = 0
      }
    }
    else if (c == "#" && !has) while (i < len && substr(s, i + 1, 1) != "\n") i++
    else { if (c == "{") braced = 1; add(c) }
  }
  end_command()
}

function end_word(   whole) {
  if (!has) return
  whole = word part
  if (document) {
    ends[++documents] = whole
    dashes[documents] = document == 2
    quoted[documents] = !bare
  } else {
    if (whole ~ /[ \t\n\r;&|()`]/) maybe(whole, depth + 1)
    if (!target) { if (braced) expand(whole); else words[++count] = whole }
  }
  word = part = ""
  has = braced = target = document = 0
  bare = 1
}

# Makes of `-{r,f}` what a shell makes of it.
function expand(whole,   head, tail, i, n, choices) {
  works(length(whole))
  if (!match(whole, /[{][^{},]*,[^{}]*[}]/)) { words[++count] = whole; return }
  head = substr(whole, 1, RSTART - 1)
  tail = substr(whole, RSTART + RLENGTH)
  n = split(substr(whole, RSTART + 1, RLENGTH - 2), choices, ",")
  for (i = 1; i <= n; i++) expand(head choices[i] tail)
}

# Judges a command; a program may stand anywhere in it (`env X=1 git push`).
function end_command(   i, j, name, all, own) {
  end_word()
  if (count && !is_plain()) runs = 1
  for (i = 1; i <= count; i++) {
    name = words[i]
    if (name ~ /^GIT_CONFIG_(KEY_|PARAMETERS)/) aliases(substr(name, match(name, /[aA][lL][iI][aA][sS][.]/)))
    # What is a word of git is no program.
    if (i == own) continue
    sub(/.*\//, "", name)
    if (name !~ /^(git|rm|find|eval|git-push|git-send-pack|git-http-push)$/) continue
    works(count - i)
    if (name == "git") own = git(i)
    else if (name == "rm") remove(i)
    else if (name == "find") {
      for (j = i + 1; j <= count; j++) if (words[j] == "-delete") block("remove files by name, without find -delete")
    } else if (name == "eval") {
      all = ""
      for (j = i + 1; j <= count; j++) all = all " " words[j]
      if (j > i + 2) later(all, depth + 1)
    }
    else pushes()
  }
  count = target = document = 0
}

# Whether a command runs nothing of what it is given or reads.
function is_plain(   i) {
  for (i = 1; i < count; i++) {
    if (words[i] !~ /^([a-zA-Z_][a-zA-Z0-9_]*=.*|if|then|elif|else|while|until|do|!|[{])$/) break
  }
  if (words[i] == "git") return words[i + 1] ~ /^(add|apply|blame|commit|diff|grep|log|ls-files|show|status)$/
  return words[i] ~ /^(cat|tee|echo|printf|e?grep|fgrep|rg|sed|cut|tr|sort|uniq|head|tail|wc|ls|mkdir|touch|cd|pwd|true|:|test|[[]|diff|cmp|jq|for|case|fi|done|esac|[}])$/
}

function pushes() { block("nothing is pushed; what you leave in the working directory is taken over for you") }

function aliases(setting) {
  if (tolower(setting) ~ /^alias[.]/) block("git is used without aliases of your own")
}

# Judges the words behind `git`, and gives where its own command is.
function git(i,   w, j) {
  for (i++; i <= count; i++) {
    w = words[i]
    if (w == "-c" || w == "--config-env") aliases(words[++i])
    else if (w ~ /^--config-env=/) aliases(substr(w, 14))
    else if (w ~ /^(-C|--git-dir|--work-tree|--namespace|--attr-source|--super-prefix)$/) i++
    # What is put in for a variable may be nothing.
    else if (w !~ /^[-$]/ && w != "") break
  }
  if (i > count) return 0
  if (w ~ /^(push|send-pack|http-push)$/) pushes()
  if (w !~ /^(config|subtree|lfs|for-each-repo)$/) return i
  for (j = i + 1; j <= count; j++) {
    if (w == "config") aliases(words[j])
    else if (words[j] == "push") pushes()
  }
  return i
}

function remove(i,   w, recursive, force) {
  for (i++; i <= count; i++) {
    w = words[i]
    # The end of its options, or of what `find` is to run.
    if (w == "--" || w == ";" || (w == "+" && words[i - 1] == "{}")) break
    if (w ~ /^--./) {
      if (index("--recursive", w) == 1) recursive = 1
      if (index("--force", w) == 1) force = 1
    } else if (w ~ /^-[a-zA-Z]+$/) {
      if (w ~ /[rR]/) recursive = 1
      if (w ~ /f/) force = 1
    }
  }
  if (recursive && force) block("remove files by name, without -f")
}

{ input = input $0 "\n" }

END {
  q = "\047"
  size = length(input)
  works(size)
  # Only the command counts: a description may say "push" as it likes.
  for (at = 1; at <= size; at++) {
    if (substr(input, at, 1) != "\"") continue
    at = string(at)
    if (text == "command" && match(substr(input, at + 1, 20), /^[ \t\n]*:[ \t\n]*"/)) {
      at = string(at + RLENGTH)
      later(text, 1)
    }
  }
  # What cannot be found is looked at as a whole.
  if (!last) later(input, 1)
  for (first = 1; ; first++) {
    if (first > last && runs) {
      for (; seen < held; seen++) later(maybes[seen + 1], held_depths[seen + 1])
    }
    if (first > last) exit 0
    depth = depths[first]
    scan(texts[first])
  }
}
' >&2
code=$?
[ "$code" = 0 ] && exit 0
[ "$code" = 2 ] || printf '%s\n' 'blocked by policy: the command could not be looked at; is there an awk?' >&2
exit 2
