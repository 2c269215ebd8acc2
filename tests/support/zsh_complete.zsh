#!/usr/bin/env zsh
# What zsh offers for a command line, one word a line: a real zsh on a pseudo-terminal, asked with the tab key.
# usage: zsh_complete.zsh SCRIPT LINE      SCRIPT: to be sourced, or a folder for $fpath
zmodload zsh/zpty
if [[ -d $1 ]]; then
  set_up="fpath=(${(q)1} \$fpath); autoload -U compinit; compinit -u -D"
else
  set_up="autoload -U compinit; compinit -u -D; source ${(q)1}"
fi
zpty shell zsh -f -i
zpty -w shell "PROMPT=; unset zle_bracketed_paste; stty -echo; $set_up"
zpty -w shell 'compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return $?; fi
  typeset -a words
  builtin compadd -A words "$@"
  for word in $words; do print -r -- "<<$word>>"; done
}
bindkey "^I" complete-word
begin() { comppostfuncs=(finish) }
finish() { print "[[end]]"; exit }
compprefuncs=(begin)
print "[[ready]]"'
zpty -r -m shell out '*\[\[ready\]\]*'
zpty -w -n shell "$2"$'\t'
zpty -r -m shell out '*\[\[end\]\]*'
print -r -- $out | sed -n 's/.*<<\(.*\)>>.*$/\1/p'
