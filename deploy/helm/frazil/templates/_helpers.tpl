{{- define "frazil.labels" -}}
app.kubernetes.io/name: frazil
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "frazil.name" -}}
{{ printf "frazil-%s" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The section `http` of the pipeline file, without its short form. */}}
{{- define "frazil.http" -}}
{{- $file := fromYaml .Values.pipeline -}}
{{- if hasKey $file "Error" -}}
{{- fail (printf "pipeline is no YAML: %s" $file.Error) -}}
{{- end -}}
{{- if and (hasKey $file "http") (not (kindIs "map" $file.http)) -}}
{{- fail "the pod's probes need the HTTP service: leave `http: false` out of the pipeline file" -}}
{{- end -}}
{{- toYaml (default dict $file.http) -}}
{{- end }}

{{- define "frazil.port" -}}
{{- $http := fromYaml (include "frazil.http" .) -}}
{{- default "127.0.0.1:8787" $http.listen | splitList ":" | last -}}
{{- end }}

{{/* The word of `ha.elect` in the pipeline file; `none` without an election. */}}
{{- define "frazil.elect" -}}
{{- $file := fromYaml .Values.pipeline -}}
{{- ternary (default "kafka" (default dict $file.ha).elect) "none" (hasKey $file "ha") -}}
{{- end }}

{{/* With TLS the service can be reached from other machines, as the kubelet is one; else only from inside the pod. */}}
{{- define "frazil.probe" -}}
{{- $http := fromYaml (include "frazil.http" .root) -}}
{{- if $http.tls -}}
httpGet: {path: {{ .path }}, port: http, scheme: HTTPS}
{{- else -}}
exec:
  command:
    - python
    - -c
    - import urllib.request; urllib.request.urlopen("http://127.0.0.1:{{ include "frazil.port" .root }}{{ .path }}", timeout=5)
{{- end }}
timeoutSeconds: 6
{{- end }}
